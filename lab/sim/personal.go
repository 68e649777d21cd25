package sim

import (
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// personalModels is what the agents of a run have of their own.
type personalModels[T learner.Float] struct {
	*runConstants[T]
	parts *learner.ParameterSplit // of the model; of ditto all is shared
	first []T                     // w_0, of length d
	// own is each agent's own tensors, or its v_k of ditto; nil before its first round, and without personal.
	own  [][]T
	hand *agentSimulator[T] // for fine-tuning and scores
	x    []T                // d, of the hand
}

func newPersonal[T learner.Float](c *runConstants[T]) *personalModels[T] {
	p := &personalModels[T]{runConstants: c, parts: c.in.Problem.Model.NewParameterSplit(c.e.Personal.Layers),
		first: c.start()}
	if c.e.Personal.IsEnabled() {
		p.own = make([][]T, c.agents)
	}
	if c.in.Problem.HeldOut != nil {
		p.hand, p.x = newHand(c), make([]T, len(p.first))
	}
	return p
}

// start is w_0 of what agents share.
func (p *personalModels[T]) start() []T {
	w := make([]T, p.parts.SharedElementCount())
	learner.SplitParameters(w, nil, p.parts, p.first)
	return w
}

// agentPart is agent k's own part, which it begins with the values of w_0.
func (p *personalModels[T]) agentPart(k int) []T {
	if p.own[k] == nil {
		if p.e.Personal.UsesDitto() {
			p.own[k] = slices.Clone(p.first)
		} else {
			p.own[k] = make([]T, p.parts.OwnElementCount())
			learner.SplitParameters(nil, p.own[k], p.parts, p.first)
		}
	}
	return p.own[k]
}

// trainAgent writes where agent k comes to in round i, with this many steps from the shared base, to w, and keeps where
// its own part comes to.
func (p *personalModels[T]) trainAgent(h *agentSimulator[T], w, base []T, k, i, steps int) error {
	if p.own == nil || p.e.Personal.UsesDitto() {
		copy(w, base)
		h.steps.Correction.Anchor = base
		if err := h.takeLocalSteps(w, k, 1, steps); err != nil || p.own == nil {
			return err
		}
		return h.trainPersonalModel(p.agentPart(k), p.e.Personal.DittoLambda, base, k, i, h.steps.StepOffset, steps)
	}
	own := p.agentPart(k)
	h.x, h.anchor = resize(h.x, len(p.first)), resize(h.anchor, len(p.first))
	learner.JoinParameters(h.x, p.parts, base, own)
	copy(h.anchor, h.x)
	h.steps.Correction.Anchor = h.anchor
	err := h.takeLocalSteps(h.x, k, 1, steps)
	learner.SplitParameters(w, own, p.parts, h.x)
	return err
}

// trainPersonalModel takes steps of a model v that is agent k's own, in a round; see [task.NewDittoStepRunner].
func (h *agentSimulator[T]) trainPersonalModel(v []T, lambda float64, anchor []T, k, i int, offset uint64,
	steps int) error {
	task.ReseedAgentRand(&h.pcg, task.PersonalStepsSeed(h.c.seed), wire.RoundID(i), h.c.stream(k))
	own := task.NewDittoStepRunner(h.steps.Descent, lambda, anchor, offset)
	if err := own.TakeLocalSteps(v, 1, uint64(steps)); err != nil {
		return &agentError{k, err}
	}
	return nil
}

// model is the one that agent k predicts with after round i and t steps of the schedule, whose shared part is w. It is
// valid until the next call.
func (p *personalModels[T]) model(w []T, k, i int, t uint64) ([]T, error) {
	switch {
	case p.own == nil:
		copy(p.x, w)
	case p.e.Personal.UsesDitto():
		copy(p.x, p.agentPart(k))
	default:
		learner.JoinParameters(p.x, p.parts, w, p.agentPart(k))
	}
	n := p.e.Finetune.Steps
	if n == 0 {
		return p.x, nil
	}
	p.hand.loadAgent(k, i)
	return p.x, p.hand.trainPersonalModel(p.x, 0, nil, k, i, t, n)
}

// measure scores each agent's model after round i on the rows that it holds out; see model.
func (p *personalModels[T]) measure(r *recorder, w []T, i int, t uint64) error {
	if p.in.Problem.HeldOut == nil {
		return nil
	}
	var pool evaluation.ResultPool
	for k := range p.agents {
		x, err := p.model(w, k, i, t)
		if err != nil {
			return err
		}
		said := evaluation.FromScoreSums(0, 0, p.hand.steps.Model.SumScores(x, p.in.Problem.HeldOut[k]))
		if said.Rows == 0 {
			return &agentError{k, errors.New("the risk of its own model is not finite, or beyond all bounds")}
		}
		pool.Add(p.name(k), said)
	}
	r.setOwn(pool.Summarize(1))
	return nil
}

// setOwn records what agents' models do on all rows that are held out, on average over agents, and at the worst one.
func (r *recorder) setOwn(of evaluation.Result) {
	set := func(name string, all float64, each *evaluation.AgentMetricDistribution) {
		r.set(name, all)
		if each != nil { // else there are too few
			r.set(name+"_mean", each.Mean)
			r.set(name+"_worst", each.Worst)
		}
	}
	set("own_risk", of.Risk, of.AgentRisk)
	if of.Accuracy != nil { // else a regression
		set("own_accuracy", *of.Accuracy, of.AgentAccuracy)
	}
}
