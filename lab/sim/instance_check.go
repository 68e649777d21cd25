package sim

import (
	"cmp"
	"fmt"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Check validates the experiment, including all checks of [Run] that need a problem instance. These checks detect step
// sizes above the stability limit, lists of the wrong length, and graphs that cannot be connected.
func (e *Experiment) Check() error {
	if err := e.Validate(); err != nil {
		return err
	}
	if e.Precision == Float32 {
		return checkFirst(*e, source[float32](*e))
	}
	return checkFirst(*e, source[float64](*e))
}

func checkFirst[T learner.Float](e Experiment, instance func(run int) (Instance[T], error)) error {
	in, err := instance(0)
	if err != nil {
		return err
	}
	_, err = newRunConstants(&e, 0, in)
	return err
}

// maxListNumbers is the maximum length of the large lists that a run stores.
const maxListNumbers = 1 << 27

// check validates an experiment against the instance of a run.
func check[T learner.Float](e *Experiment, in Instance[T], seed uint64) error {
	p := in.Problem
	var c spec.ProblemList
	model, err := learner.NewModel[T](p.Model)
	if err != nil {
		c.AddError("data", err)
		return c.Err()
	}
	if e.Participants.Count > p.Agents && e.Sampling == spec.SamplingWithoutReplacement {
		c.Require(false, "participants", "is %d; want at most the number of agents (%d) without replacement",
			e.Participants.Count,
			p.Agents)
	}
	if e.Attackers > p.Agents {
		c.Require(false, "attackers", "is %d; want at most the number of agents (%d)", e.Attackers, p.Agents)
	}
	for _, list := range []struct {
		key string
		of  PerAgent
	}{{"local_steps", e.LocalSteps}, {"batch_size", e.BatchSize}, {"response.probability", e.Response.Probability},
		{"mixing.gradients", e.Mixing.Gradients}} {
		if n := len(list.of.Values); n > 1 && n != p.Agents {
			c.Require(false, list.key, "has %d numbers; want 1 for all agents, or one for each of the %d agents", n,
				p.Agents)
		}
	}
	if frozen := e.Data.Model.FrozenTensors; len(frozen) > 0 && len(p.Model.TensorRanges(frozen)) == 0 {
		c.Require(false, "data.model.frozen", "is %v, but the model contains none of these tensors", frozen)
	}
	if own := e.Personal.Layers; len(own) > 0 {
		n := p.Model.NewParameterSplit(own).OwnElementCount()
		c.Require(n > 0, "personal.layers", "is %v, but the model contains none of these tensors", own)
		c.Require(n < p.Model.ParameterCount(), "personal.layers", "is %v, but at least one tensor must be shared", own)
	}
	if n, d := p.Agents, p.Model.ParameterCount(); e.Personal.IsEnabled() && float64(n)*float64(d) > maxListNumbers {
		c.Require(false, "agents", "is %d, but with %d parameters at most %d agents can have personal models", n, d,
			maxListNumbers/d)
	}
	if n := len(p.Weights); n > 0 && n != p.Agents {
		c.Require(false, "weights", "has %d numbers; want one for each of the %d agents", n, p.Agents)
	}
	if n, d := len(p.Start), p.Model.ParameterCount(); n > 0 && n != d {
		c.Require(false, "data.start", "has %d numbers, but the model has %d parameters", n, d)
	}
	if n, d := p.Agents,
		p.Model.ParameterCount(); e.Algorithm == spec.FedDec && float64(n)*float64(d) > maxListNumbers {
		c.Require(false, "agents", "is %d, but with %d parameters feddec supports at most %d agents", n, d,
			maxListNumbers/d)
	}
	if b := e.BatchSize.most(); b*float64(p.Model.Inputs) > maxListNumbers {
		c.Require(false, "batch_size", "is %v, but with %d features the maximum is %d", b, p.Model.Inputs,
			maxListNumbers/p.Model.Inputs)
	}
	if in.Mixing != nil && in.Mixing.Graph.NodeCount() != p.Agents {
		c.Require(false, "mixing.graph", "has %d nodes, but there are %d agents", in.Mixing.Graph.NodeCount(), p.Agents)
	}
	if err := c.Err(); err != nil {
		return err
	}
	if err := checkSchedule(e, &p.Objective); err != nil {
		return err
	}
	if in.replay != nil {
		return nil // a replay makes no draws
	}
	local := p.Loader(nil)(0)
	s := learner.StepSampler[T]{Data: local.Samples, Stream: local.Stream}
	s.BatchSize = int(e.BatchSize.least())
	if e.Load != "" && local.Samples == nil && local.Stream == nil {
		return fmt.Errorf("%s contains neither draws (steps.npy, participants.npy) nor data to draw from (x.npy, "+
			"y.npy, rows.npy or means.npy)", runDir(e.Load, 0))
	}
	c.AddError("batch_size", s.Validate(model))
	c.AddSectionErrors("", cmp.Or(checkMeanSquare(e, in), checkStepSize(e, in, seed)))
	return c.Err()
}

// checkSchedule returns an error if a diminishing step size needs constants of the problem, such as the strong
// convexity, that are unknown.
func checkSchedule(e *Experiment, o *data.Objective) error {
	if !e.StepSize.IsDiminishing {
		return nil
	}
	if convexity := max(e.StepSize.StrongConvexity, o.StrongConvexity); !(convexity > 0) {
		return &spec.FieldError{Key: "step_size.strong_convexity", Problem: "is unknown for this problem: set it"}
	}
	if smoothness := max(e.StepSize.DecayOffset, e.StepSize.Smoothness, o.Smoothness); !(smoothness > 0) {
		return &spec.FieldError{Key: "step_size.smoothness", Problem: "is unknown for this problem: set it"}
	}
	return nil
}

// checkMeanSquare returns an error if the expected squared error E‖w⁰ − w_i‖² grows without bound with the given step
// size. The limit is known exactly for identical agents with isotropic regressors.
func checkMeanSquare[T learner.Float](e *Experiment, in Instance[T]) error {
	p, always := in.Problem, e.Response.Probability.allEqual() && e.Response.Probability.Values[0] == 1
	if p.Objective.Isotropic == 0 || p.Weights != nil || e.StepSize.IsDiminishing || e.Algorithm != spec.FedAvg ||
		e.Sampling != spec.SamplingWithoutReplacement ||
		!always || !e.LocalSteps.allEqual() || !e.BatchSize.allEqual() {
		return nil
	}
	lab := theory.Lab{
		Inputs: p.Model.Inputs, RegressorVar: p.Objective.Isotropic, Agents: p.Agents,
		Participants: e.Participants.Count,
		LocalSteps:   int(e.LocalSteps.Values[0]), BatchSize: int(e.BatchSize.Values[0]),
	}
	stable := func(mu float64) bool {
		lab.StepSize = mu
		if !e.StepSize.NormalizesStepSize {
			lab.StepSize *= float64(lab.LocalSteps) // The theory divides the step size by the number of steps.
		}
		return lab.Gain() < 1
	}
	if stable(e.StepSize.Constant) {
		return nil
	}
	low, high := 0.0, e.StepSize.Constant
	for range 50 {
		if middle := (low + high) / 2; stable(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return &spec.FieldError{Key: stepSizeKey(&e.StepSize),
		Problem: fmt.Sprintf("is %v, but with M = %d, L = %d, E = %d and B = %d the mean-square error is stable only "+
			"below %.4g",
			e.StepSize.Constant, lab.Inputs, lab.Participants, lab.LocalSteps, lab.BatchSize, low)}
}

// checkStepSize returns an error if the mean of the model diverges on a quadratic problem. With one local step per
// round, the mean diverges if μ ≥ 2/λ_max(∇²J), for any participants. With more local steps, it diverges if μ_k ≥
// 2/λ_max(∇²J_k) for an agent k. λ_max is the largest eigenvalue.
func checkStepSize[T learner.Float](e *Experiment, in Instance[T], seed uint64) error {
	p := in.Problem
	o := &p.Objective
	mu := e.schedule(o, seed).StepSizeAt(1)
	if e.Exchange == spec.ExchangeGradient || o.Steepest > 0 && e.Algorithm == spec.FedAvg && e.LocalSteps.most() == 1 {
		return checkServerStep(e, o, mu)
	}
	if o.Curvature == nil {
		return nil
	}
	total := 0.0
	for _, v := range p.Weights {
		total += v
	}
	for k := range p.Agents {
		scale := 1.0
		if p.Weights != nil && e.Weighting == spec.WeightInStepSize {
			scale = float64(p.Agents) * p.Weights[k] / total
		}
		if e.StepSize.NormalizesStepSize && e.Algorithm == spec.FedAvg {
			scale /= e.LocalSteps.At(k, seed)
		}
		if lambda := o.Curvature(k); mu*scale*lambda >= 2 {
			return &spec.FieldError{Key: stepSizeKey(&e.StepSize),
				Problem: fmt.Sprintf("starts at %.6g, but agent %d is stable only below %.6g = 2/(λ_max·K·p_k/E_k) "+
					"with λ_max = %.6g",
					mu, k, 2/(lambda*scale), lambda)}
		}
	}
	return nil
}

// checkServerStep returns an error if the step size mu is at least 2/λ_max(∇²J), where λ_max is the largest eigenvalue
// of the Hessian.
func checkServerStep(e *Experiment, o *data.Objective, mu float64) error {
	if mu*o.Steepest >= 2 {
		return &spec.FieldError{Key: stepSizeKey(&e.StepSize),
			Problem: fmt.Sprintf("starts at %.6g, but gradient descent is stable only below %.6g = 2/λ_max(∇²J) with "+
				"λ_max = %.6g",
				mu, 2/o.Steepest, o.Steepest)}
	}
	return nil
}

// stepSizeKey returns the configuration key that sets the step size.
func stepSizeKey(s *spec.StepSize) string {
	if s.IsDiminishing {
		return "step_size.diminishing"
	}
	return "step_size.constant"
}
