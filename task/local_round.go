package task

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

// LocalJob describes an agent's computation in a training round.
type LocalJob[T learner.Float] struct {
	BaseParameters []T
	Samples        *learner.Samples[T]
	// factor K·p_k of the step size, for the weight p_k of this agent among K agents; 1 if the server applies the
	// weight
	StepWeight float64
	// StepOffset is the number of local steps in earlier rounds. The step size schedule continues from there.
	StepOffset uint64
	Steps      int        // number E_k of local steps that this agent, agent k, takes
	Rand       *rand.Rand // source of all random draws, whose order [learner.StepSampler] describes
	// ShouldStop is called between local steps and stops them by returning true. Nil means that the steps are never
	// stopped.
	ShouldStop func() bool
	// OwnParameters contains the agent's personal parameters, from [CompiledTask.OwnParameters], and DittoRand draws
	// the batches of the personal model (see [PersonalStepsSeed]). Both may be nil.
	OwnParameters []T
	DittoRand     *rand.Rand
	// RiskSampleSeed is the seed for selecting the rows on which risks are computed, if there are more than
	// MaxRiskSampleRows. See the function [RiskSampleSeed].
	RiskSampleSeed uint64
}

// LocalOutcome is the result of an agent's computation in a training round.
type LocalOutcome[T learner.Float] struct {
	UpdateVector  []T
	OwnParameters []T // personal parameters after the local steps; nil if the task has none
	// reason why the personal model of the method Ditto was reset to the base model; nil if it was not reset
	DittoResetReason error
	StepsTaken       int     // number of local steps taken, at most LocalJob.Steps
	RiskBefore       float64 // risk of the base model on the sampled rows
	RiskAfter        float64 // risk after the local steps, on the same rows as RiskBefore
}

// RunLocalSteps takes all local steps of a round without mixing and returns the result.
func (p *CompiledTask[T]) RunLocalSteps(j LocalJob[T]) (LocalOutcome[T], error) {
	s, err := p.NewTaskStepRunner(j)
	if err != nil {
		return LocalOutcome[T]{}, err
	}
	x := slices.Clone(j.BaseParameters)
	if err := s.TakeSteps(x, 1, uint64(j.Steps)); err != nil {
		return LocalOutcome[T]{}, err
	}
	return s.Outcome(x)
}

// checkOutcomeFinite returns a DivergenceError if the update or a risk is not finite.
func checkOutcomeFinite[T learner.Float](out LocalOutcome[T]) error {
	if i := learner.FirstNonFiniteIndex(out.UpdateVector); i >= 0 {
		return &learner.DivergenceError{Step: out.StepsTaken,
			Problem: fmt.Sprintf("element %d of the update is %v", i, out.UpdateVector[i])}
	}
	if x := out.RiskBefore + out.RiskAfter; x-x != 0 {
		return &learner.DivergenceError{Step: out.StepsTaken, Problem: fmt.Sprintf("the risk (mean loss) is %v", x)}
	}
	return nil
}

// StatisticsVector returns an agent's vector for the statistics round, [n, mean_1 … mean_m, squares_1 … squares_m], for
// n rows and m columns (the features and the target): see [learner.ColumnMoments.Vector]. It returns an error if the
// agent has fewer rows than the task's MinSamples, so that no statistics of few rows leave the device.
func (p *CompiledTask[T]) StatisticsVector(s *learner.Samples[T]) ([]float64, error) {
	return p.momentsVector(s, learner.ComputeColumnMoments)
}

// RobustStatisticsVector is like StatisticsVector, but it first replaces each outlier by the median of its column (see
// [learner.RobustColumnMoments]).
func (p *CompiledTask[T]) RobustStatisticsVector(s *learner.Samples[T]) ([]float64, error) {
	return p.momentsVector(s, learner.RobustColumnMoments)
}

func (p *CompiledTask[T]) momentsVector(s *learner.Samples[T],
	of func(*learner.Samples[T]) *learner.ColumnMoments) ([]float64,
	error) {
	if n := uint64(s.Len()); n < p.Task.MinSamples {
		return nil, fmt.Errorf("the device has %d rows, but at least %d are required for reporting statistics",
			n, p.Task.MinSamples)
	}
	v := of(s).Vector()
	for i, x := range v {
		if x-x != 0 {
			return nil, fmt.Errorf("statistic %d is %v: %w", i, x, wire.ErrNotFinite)
		}
	}
	return v, nil
}
