package task

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// LocalStepRunner takes the local steps of an agent's part of a training round: those of the daemons' [TaskStepRunner]
// and of the simulator.
//
// Without neighbours these are E_k steps
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ_k(φ_{k,e−1}),  Δ_k = φ_{k,E_k} − w_{i−1}   (ch5 (5.9)–(5.10), notes Alg. 1)
//
// or, for gradient exchange, g_k = ĝ_k(w_{i−1}) (lecture (13), (33)).
//
// An agent that mixes with its neighbours takes the H local steps between two models of the server (feddec Alg. 1,
// lines 5–6), on parameters that others change in between. H is common to all agents. An agent that affords only
// E_k < H gradients spreads them evenly over the block, each scaled by H/E_k; it mixes at all steps. The schedule
// counts all H.
type LocalStepRunner[T learner.Float] struct {
	learner.Descent[T]
	StepWeight float64 // K·p_k, or 1 where the server weights
	StepOffset uint64  // t: local steps of the schedule before this round
	// BlockSteps is H, and Gradients E_k ≤ H, of an agent that mixes; without neighbours they are 0.
	BlockSteps, GradientSteps uint64
	Gradient                  []T         // for gradient exchange: its gradient, written by Take; else nil
	ShouldStop                func() bool // polled between steps; nil = never

	stepsTaken int
}

// TakeLocalSteps takes local steps first to last, counted from 1, in place on x. Where blocks have no end they go on
// beyond H. Without neighbours all steps are taken at once, from 1 to E_k. The error is a *learner.DivergenceError when
// the numbers left the finite ones, or ErrStoppedMidBlock.
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

// runSteps takes steps t to t + n − 1.
func (s *LocalStepRunner[T]) runSteps(x []T, n int, weight float64, t uint64) error {
	taken, err := s.Run(x, n, weight, s.StepOffset+t-1, s.ShouldStop)
	s.stepsTaken += taken
	return err
}

// TaskStepRunner is the Steps of a task, with their outcome. An agent that is stopped after e < E_k steps, and has no
// neighbours, sends Δ_k·E_k/e, which keeps the average unbiased.
type TaskStepRunner[T learner.Float] struct {
	LocalStepRunner[T]
	compiledTask *CompiledTask[T]
	job          LocalJob[T]

	dittoRunner      *LocalStepRunner[T] // of v_k
	dittoModel       []T                 // v_k as far as it has come
	dittoResetReason error
}

// NewTaskStepRunner prepares local steps; j.Steps is E_k, at most H.
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
			return nil, fmt.Errorf("%d gradients in a block of %d local steps", j.Steps, s.BlockSteps)
		}
	case training.ExchangeKind == spec.ExchangeGradient:
		s.Gradient = make([]T, len(j.BaseParameters))
	default:
		s.NormalizesStepSize = training.NormalizesStepSize
	}
	return s, nil
}

// newDescent prepares steps on samples, without a proximal term.
func (p *CompiledTask[T]) newDescent(samples *learner.Samples[T], rng *rand.Rand) (learner.Descent[T], error) {
	draws := &learner.StepSampler[T]{GradientConfig: p.GradientConfig(), Data: samples, Rand: rng}
	return learner.Descent[T]{Model: p.Model, Draws: draws, Schedule: p.Schedule, Correction: learner.StepCorrection[T]{
		FrozenRanges: p.Model.Architecture().TensorRanges(p.Task.Model.FrozenTensors)}}, draws.Validate(p.Model)
}

// ErrStoppedMidBlock reports a block that was stopped before its last local step.
var ErrStoppedMidBlock = errors.New("stopped in the middle of a block")

// ErrNoSteps reports a job that was stopped before its first local step.
var ErrNoSteps = errors.New("stopped before the first local step")

// Outcome returns what the agent has after its local steps, as a change of the model that they began with.
func (s *TaskStepRunner[T]) Outcome(x []T) (LocalOutcome[T], error) {
	return s.OutcomeFromBase(s.job.BaseParameters, x)
}

// OutcomeFromBase returns what the agent has by now, as a change of a model w_{i−1}, and begins to count its steps
// anew. Without neighbours x becomes that change, and holds the parameters no longer. The error is a
// *learner.DivergenceError, or ErrNoSteps.
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
		out.UpdateVector = slices.Clone(x) // mixing goes on with x
	}
	err := out.SetScaledChange(out.UpdateVector, base, stretch)
	out.UpdateVector = s.compiledTask.SharedParameters(out.UpdateVector)
	return out, err
}

// SetScaledChange makes x the outcome's vector: stretch·(x − base). The error is a *learner.DivergenceError.
func (out *LocalOutcome[T]) SetScaledChange(x, base []T, stretch T) error {
	for i, w := range base {
		x[i] = T(stretch * (x[i] - w))
	}
	out.UpdateVector = x
	return checkOutcomeFinite(*out)
}

// IsGradientStep tells whether local step t of h, from 1, is one of the e that take a gradient.
func IsGradientStep(t, h, e uint64) bool { return t*e/h != (t-1)*e/h }
