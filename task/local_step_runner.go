package task

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// LocalStepRunner takes the local steps of an agent in a training round. The daemons use it in [TaskStepRunner]; the
// simulator uses it directly.
//
// Without neighbours, agent k takes E_k steps with the stochastic gradient ĝ_k and the step size μ_k, starting at the
// base model w_{i−1}, and computes the update Δ_k (ch5, equations (5.9)–(5.10); notes, Algorithm 1):
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ_k(φ_{k,e−1}),  Δ_k = φ_{k,E_k} − w_{i−1}
//
// For gradient exchange, it computes only the gradient g_k = ĝ_k(w_{i−1}) (lecture, equations (13) and (33)).
//
// An agent that mixes with its neighbours takes the H local steps between two server models (FedDec paper, Algorithm 1,
// lines 5–6); mixing changes the parameters between the steps. The number H is the same for all agents. An agent that
// can compute only E_k < H gradients spreads them evenly over the block and scales each by H/E_k. It mixes after all
// steps, and the step size schedule counts all H steps.
type LocalStepRunner[T learner.Float] struct {
	learner.Descent[T]
	// factor K·p_k of the step size, for the weight p_k of this agent among K agents; 1 if the server applies the
	// weight
	StepWeight float64
	StepOffset uint64 // number t of local steps in earlier rounds; the step size schedule continues from this number
	// BlockSteps is the length H of a mixing block. GradientSteps is the number E_k ≤ H of steps in the block that
	// compute a gradient. Both numbers are 0 without mixing.
	BlockSteps, GradientSteps uint64
	Gradient                  []T
	ShouldStop                func() bool

	stepsTaken int
}

// TakeLocalSteps takes the local steps from first to last, counted from 1, and updates x in place. In endless blocks,
// last may exceed the block length H. Without mixing, all steps must be taken in one call. TakeLocalSteps returns a
// *learner.DivergenceError for non-finite values, or ErrStoppedMidBlock.
func (s *LocalStepRunner[T]) TakeLocalSteps(x []T, first, last uint64) error {
	switch {
	case s.Gradient != nil:
		s.GradientAt(s.Gradient, x)
		s.stepsTaken = 1
		return nil
	case s.BlockSteps == 0:
		return s.runSteps(x, int(last-first+1), s.StepWeight, first)
	}
	weight := s.StepWeight * (float64(s.BlockSteps) / float64(s.GradientSteps))
	for t := first; t <= last; t++ {
		if !IsGradientStep(t, s.BlockSteps, s.GradientSteps) {
			continue
		}
		before := s.stepsTaken
		if err := s.runSteps(x, 1, weight, t); err != nil {
			return err
		}
		if s.stepsTaken == before {
			return ErrStoppedMidBlock
		}
	}
	return nil
}

// runSteps takes n steps, starting with step t, and updates x in place.
func (s *LocalStepRunner[T]) runSteps(x []T, n int, weight float64, t uint64) error {
	taken, err := s.Run(x, n, weight, s.StepOffset+t-1, s.ShouldStop)
	s.stepsTaken += taken
	return err
}

// TaskStepRunner takes the local steps of a task and computes the result. If it is stopped after e of E_k steps without
// mixing, it scales the update by E_k/e, which keeps the average over agents unbiased.
type TaskStepRunner[T learner.Float] struct {
	LocalStepRunner[T]
	compiledTask *CompiledTask[T]
	job          LocalJob[T]

	dittoRunner      *LocalStepRunner[T] // runner for the personal model of the method Ditto; nil without Ditto
	dittoModel       []T                 // parameters of the personal model of the method Ditto; nil without Ditto
	dittoResetReason error
}

// NewTaskStepRunner returns a runner for the job's local steps. The number j.Steps of steps must be at most the block
// length H.
func (p *CompiledTask[T]) NewTaskStepRunner(j LocalJob[T]) (*TaskStepRunner[T], error) {
	d, err := p.newDescent(j.Samples, j.Rand)
	if err != nil {
		return nil, err
	}
	s := &TaskStepRunner[T]{compiledTask: p, job: j, LocalStepRunner: LocalStepRunner[T]{StepWeight: j.StepWeight,
		StepOffset: j.StepOffset,
		ShouldStop: j.ShouldStop,
		Descent:    d}}
	s.Correction.ProximalWeight, s.Correction.Anchor = p.Task.Training.Proximal, j.BaseParameters
	if p.Task.Personal.UsesDitto {
		if err := s.prepareDitto(&j); err != nil {
			return nil, err
		}
	}
	switch training := &p.Task.Training; {
	case p.Task.Mixing.IntervalSteps > 0:
		s.BlockSteps, s.GradientSteps = uint64(training.MaxLocalSteps), uint64(max(j.Steps, 0))
		if j.Steps < 1 || s.GradientSteps > s.BlockSteps {
			return nil, fmt.Errorf("invalid number of gradient steps %d in a block of %d local steps", j.Steps,
				s.BlockSteps)
		}
	case training.ExchangeKind == spec.ExchangeGradient:
		s.Gradient = make([]T, len(j.BaseParameters))
	default:
		s.NormalizesStepSize = training.NormalizesStepSize
	}
	return s, nil
}

// newDescent returns the gradient descent on the given samples, without a proximal term.
func (p *CompiledTask[T]) newDescent(samples *learner.Samples[T], rng *rand.Rand) (learner.Descent[T], error) {
	draws := &learner.StepSampler[T]{GradientConfig: p.GradientConfig(), Data: samples, Rand: rng}
	return learner.Descent[T]{Model: p.Model, Draws: draws, Schedule: p.Schedule, Correction: learner.StepCorrection[T]{
		FrozenRanges: p.Model.Architecture().TensorRanges(p.Task.Model.FrozenTensors)}}, draws.Validate(p.Model)
}

// ErrStoppedMidBlock is the error for a mixing block that was stopped before its last local step.
var ErrStoppedMidBlock = errors.New("training was stopped before the end of the mixing block")

// ErrNoSteps is the error for a job that was stopped before its first local step.
var ErrNoSteps = errors.New("training was stopped before the first local step")

// Outcome returns the result of the local steps, relative to the job's base model. The vector x contains the parameters
// after the steps.
func (s *TaskStepRunner[T]) Outcome(x []T) (LocalOutcome[T], error) {
	return s.OutcomeFromBase(s.job.BaseParameters, x)
}

// OutcomeFromBase returns the result of the steps so far, relative to the parameters base, and resets the step count.
// Without mixing it overwrites x with the update. Its error is a *learner.DivergenceError or ErrNoSteps.
func (s *TaskStepRunner[T]) OutcomeFromBase(base, x []T) (LocalOutcome[T], error) {
	rows := s.compiledTask.RiskSample(s.job.Samples, s.job.RiskSampleSeed).All()
	out := LocalOutcome[T]{UpdateVector: s.Gradient, StepsTaken: s.stepsTaken,
		RiskBefore: s.compiledTask.Model.Risk(base, rows)}
	s.stepsTaken = 0
	if s.Gradient != nil {
		out.RiskAfter = out.RiskBefore
		return out, checkOutcomeFinite(out)
	}
	out.OwnParameters, out.DittoResetReason = s.ownParametersAfter(x), s.dittoResetReason
	stretch := T(1)
	if s.BlockSteps == 0 {
		if out.StepsTaken == 0 {
			return out, ErrNoSteps
		}
		stretch = T(float64(s.job.Steps) / float64(out.StepsTaken))
	}
	out.RiskAfter = s.compiledTask.Model.Risk(x, rows)
	if out.UpdateVector = x; s.BlockSteps > 0 {
		out.UpdateVector = slices.Clone(x) // Copy x, since mixing continues with these parameters.
	}
	err := out.SetScaledChange(out.UpdateVector, base, stretch)
	out.UpdateVector = s.compiledTask.SharedParameters(out.UpdateVector)
	return out, err
}

// SetScaledChange overwrites x with stretch·(x − base) and makes the result the update vector. It returns a
// *learner.DivergenceError if the vector is not finite.
func (out *LocalOutcome[T]) SetScaledChange(x, base []T, stretch T) error {
	for i, w := range base {
		x[i] = T(stretch * (x[i] - w))
	}
	out.UpdateVector = x
	return checkOutcomeFinite(*out)
}

// IsGradientStep reports whether step t of a block of h steps computes a gradient. Steps are counted from 1. The
// e steps that compute a gradient are evenly spread over the h steps of the block.
func IsGradientStep(t, h, e uint64) bool { return t*e/h != (t-1)*e/h }
