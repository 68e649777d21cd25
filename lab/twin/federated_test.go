package twin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TestGoldenRounds replays every algorithm that has a server in each round. It uses the production code for local
// steps, updates and aggregation.
func TestGoldenRounds(t *testing.T) {
	for _, g := range load(t) {
		if strings.HasPrefix(g.Algorithm, "feddec") {
			continue
		}
		t.Run(g.Algorithm, func(t *testing.T) {
			p := newPlayer(t, &g)
			w := slices.Clone(g.Start)
			var got [][]float64
			for _, r := range g.Rounds {
				w = p.round(w, &r)
				got = append(got, w)
			}
			g.compare(t, got)
		})
	}
}

// round computes one round from the parameters w and returns the parameters that the coordinator would aggregate.
func (p *player) round(w []float64, r *drawn) []float64 {
	p.t.Helper()
	s := p.setting()
	plan := round.Plan{Kind: wire.KindTraining, Exchange: s.exchange, ServerStepSize: p.StepSize}
	var accepted []round.Participant
	payloads := map[wire.AgentID][]float64{}
	for i, k := range r.Participants {
		var steps []step
		if r.Steps != nil {
			steps = r.Steps[i]
		}
		id := wire.AgentID(fmt.Sprintf("agent-%d", k))
		accepted = append(accepted, round.Participant{Agent: id, DrawCount: 1, Weight: p.weight(k)})
		payloads[id] = p.local(w, k, steps)
	}
	return p.fold(w, accepted, payloads, &plan, s.weighting)
}

// fold returns the coordinator's aggregate w_i = w_{i−1} + Σ c_k v_k of the updates v_k with coefficients c_k.
func (p *player) fold(base []float64, accepted []round.Participant, payloads map[wire.AgentID][]float64,
	plan *round.Plan, weighting spec.WeightPlacement) []float64 {
	p.t.Helper()
	cfg := round.DefaultConfig()
	cfg.WeightPlacement = weighting
	set := rule.UpdateSet[float64]{UpdateScale: plan.UpdateScale()}
	var rows rule.InMemoryUpdates[float64]
	for _, c := range round.BuildContributions(accepted, plan, &cfg) {
		set.Updates, rows = append(set.Updates, c.UpdateMetadata), append(rows, payloads[c.Agent])
	}
	set.UpdateReader = rows
	step := make([]float64, len(base))
	by := rule.New[float64](rule.DefaultConfig())
	_, err := by.AssessUpdates(&set)
	if err = errors.Join(err, by.AggregatePart(step, &set, 0)); err != nil {
		p.t.Fatal(err)
	}
	next := make([]float64, len(base))
	if err := round.ApplyStep(next, base, step); err != nil {
		p.t.Fatal(err)
	}
	return next
}

// local returns the update of agent k: the change of its parameters, or its gradient.
func (p *player) local(w []float64, k int, steps []step) []float64 {
	p.t.Helper()
	s := p.setting()
	weight := p.weight(k)
	if s.weighting == spec.WeightInServerMean {
		weight = 1 // the server applies the weights instead
	}
	if steps == nil {
		return p.task(w, k, weight)
	}
	d := learner.Descent[float64]{Model: p.model, Draws: p.draws(k, steps), NormalizesStepSize: s.normalize,
		Schedule: learner.StepSizeSchedule{ConstantStepSize: p.StepSize}}
	out := slices.Clone(w)
	if s.exchange == spec.ExchangeGradient {
		d.GradientAt(out, w)
		return out
	}
	if _, err := d.Run(out, p.steps(k), weight, 0, nil); err != nil {
		p.t.Fatal(err)
	}
	for j := range out {
		out[j] -= w[j]
	}
	return out
}

// task returns the update of agent k for exact gradients. Because exact gradients do not depend on random draws, it can
// use the complete task code of an agent.
func (p *player) task(w []float64, k int, weight float64) []float64 {
	p.t.Helper()
	s := p.setting()
	t := wire.Task{Name: p.Algorithm, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, Ridge: p.Ridge},
		Training: wire.TrainingSettings{ExchangeKind: s.exchange, StepSize: p.StepSize,
			NormalizesStepSize: s.normalize, StepTimeBudgetMillis: 1,
			MinLocalSteps: 1, MaxLocalSteps: 100}}
	for j := range p.Inputs {
		t.Features = append(t.Features, fmt.Sprintf("x%d", j))
	}
	if p.Risk != "squared" {
		t.Model.Risk = spec.LossLogistic
	}
	if p.Hidden > 0 {
		t.Model.HiddenUnits, t.Model.Activation = []uint32{uint32(p.Hidden)}, spec.ActivationIdentity
	}
	problem, err := task.Compile[float64](t)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := problem.RunLocalSteps(task.LocalJob[float64]{BaseParameters: w, Samples: p.samples(k),
		StepWeight: weight,
		Steps:      p.steps(k)})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.UpdateVector
}
