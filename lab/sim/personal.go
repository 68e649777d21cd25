package sim

import (
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// personalModels holds the personal parameters of all agents of a run.
type personalModels[T learner.Float] struct {
	*runConstants[T]
	parts *learner.ParameterSplit // shared and personal parameters; with Ditto all are shared
	first []T                     // initial parameters of the whole model
	// own contains the personal parameters of each agent: the personal layers, or the whole personal model of the
	// method Ditto. The element of an agent is nil before the agent's first round. own is nil if the experiment has no
	// personal models.
	own  [][]T
	hand *agentSimulator[T] // simulator for fine-tuning and evaluation
	x    []T                // buffer for one model
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

// start returns the initial values of the shared parameters.
func (p *personalModels[T]) start() []T {
	w := make([]T, p.parts.SharedElementCount())
	learner.SplitParameters(w, nil, p.parts, p.first)
	return w
}

// agentPart returns the personal parameters of agent k. The first call initialises them from the initial model w_0.
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

// trainAgent takes the local steps of agent k in round i, starting from the shared parameters base. It stores the
// trained shared parameters in w and updates the personal parameters of the agent.
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

// trainPersonalModel takes local steps that train the personal model v of agent k with the method Ditto. The penalty
// lambda keeps v close to anchor. See [task.NewDittoStepRunner].
func (h *agentSimulator[T]) trainPersonalModel(v []T, lambda float64, anchor []T, k, i int, offset uint64,
	steps int) error {
	task.ReseedAgentRand(&h.pcg, task.PersonalStepsSeed(h.c.seed), wire.RoundID(i), h.c.stream(k))
	own := task.NewDittoStepRunner(h.steps.Descent, lambda, anchor, offset)
	if err := own.TakeLocalSteps(v, 1, uint64(steps)); err != nil {
		return &agentError{k, err}
	}
	return nil
}

// model returns the model with which agent k predicts after round i. w contains the shared parameters, and t is the
// number of steps in the step size schedule. The result is valid until the next call.
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

// measure evaluates the model of each agent on the agent's held-out rows and records the scores.
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
			return &agentError{k, errors.New("the risk of the personal model is too large or not finite")}
		}
		pool.Add(p.name(k), said)
	}
	r.setOwn(pool.Summarize(1))
	return nil
}

// setOwn records the scores of the agents' own models: the score over all held-out rows, the mean over the agents, and
// the score of the worst agent.
func (r *recorder) setOwn(of evaluation.Result) {
	set := func(name string, all float64, each *evaluation.AgentMetricDistribution) {
		r.set(name, all)
		if each != nil { // nil if there are too few agents
			r.set(name+"_mean", each.Mean)
			r.set(name+"_worst", each.Worst)
		}
	}
	set("own_risk", of.Risk, of.AgentRisk)
	if of.Accuracy != nil { // nil if the task is a regression
		set("own_accuracy", *of.Accuracy, of.AgentAccuracy)
	}
}
