package twin

import (
	"math"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// replay is a source of random draws that returns the draws recorded in a golden file.
type replay struct {
	agent agent
	scale float64 // factor that multiplies the rows: √2 if the loss has no factor ½
	steps []step
	draw  learner.StepDraw[float64]
}

func (r *replay) Next(*learner.Model[float64]) *learner.StepDraw[float64] {
	s := r.steps[0]
	r.steps = r.steps[1:]
	r.draw = learner.StepDraw[float64]{GradientScale: 1, Noise: s.Noise}
	for _, n := range s.Rows {
		for _, v := range r.agent.X[n] {
			r.draw.Batch.X = append(r.draw.Batch.X, r.scale*v)
		}
		r.draw.Batch.Y = append(r.draw.Batch.Y, r.scale*r.agent.Y[n])
	}
	if s.Responds != nil {
		r.draw.GradientScale = 0
		if *s.Responds {
			r.draw.GradientScale = 1 / r.agent.Delta
		}
	}
	return &r.draw
}

// player replays one golden file with the production code in float64.
type player struct {
	*golden
	t     *testing.T
	model *learner.Model[float64]
}

func newPlayer(t *testing.T, g *golden) *player {
	t.Helper()
	model, err := learner.NewModel[float64](g.architecture())
	if err != nil {
		t.Fatal(err)
	}
	return &player{g, t, model}
}

func (g *golden) architecture() learner.Architecture {
	a := learner.Architecture{Inputs: g.Inputs, Outputs: 1, Risk: spec.LossLogistic, Ridge: g.Ridge}
	switch g.Risk {
	case "squared", "row":
		a.Risk = spec.LossSquared
	case "bilinear":
		a.HiddenUnits, a.Activation = []int{g.Hidden}, spec.ActivationIdentity
	}
	return a
}

// samples returns the data of agent k.
func (g *golden) samples(k int) *learner.Samples[float64] {
	return learner.NewSamples(g.Inputs, slices.Concat(g.Agents[k].X...), g.Agents[k].Y)
}

// draws returns a draw source for agent k that replays steps.
func (p *player) draws(k int, steps []step) learner.StepDrawSource[float64] {
	scale := 1.0
	if p.Risk == "row" {
		scale = math.Sqrt2
	}
	return &replay{agent: p.Agents[k], scale: scale, steps: steps}
}

// setting is the configuration of the production code that corresponds to the algorithm in a golden file.
type setting struct {
	exchange  spec.ExchangeKind
	normalize bool
	weighting spec.WeightPlacement
}

func (g *golden) setting() setting {
	s := setting{spec.ExchangeParameters, true, spec.WeightInStepSize}
	switch g.Algorithm {
	case "gradient-gradients", "sgd-gradients", "weighted-gradients":
		s.exchange = spec.ExchangeGradient
	case "fedavg-notes":
		s.normalize = false
	case "weighted-mean":
		s.weighting = spec.WeightInServerMean
	}
	return s
}

// steps returns the number of local steps E_k of agent k.
func (g *golden) steps(k int) int { return max(1, g.Tau, g.Agents[k].LocalSteps) }

// weight returns the weight K·p_k of agent k, which is 1 if all K agents have equal weight.
func (g *golden) weight(k int) float64 {
	if p := g.Agents[k].P; p > 0 {
		return p * float64(len(g.Agents))
	}
	return 1
}
