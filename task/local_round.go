package task

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

// LocalJob is what an agent is asked to compute in a training round.
type LocalJob[T learner.Float] struct {
	BaseParameters []T // w_{i−1}, with what is the agent's own: see [CompiledTask.AllParameters]; not changed
	Samples        *learner.Samples[T]
	StepWeight     float64     // K·p_k, or 1 where the server weights
	StepOffset     uint64      // t: local steps of the schedule before this round
	Steps          int         // E_k
	Rand           *rand.Rand  // see [learner.StepSampler] for what is drawn and in which order
	ShouldStop     func() bool // polled between steps; nil = never
	// OwnParameters is what the agent has of its own, by [CompiledTask.OwnParameters]: of personal tensors Base has
	// them, too. DittoRand draws the steps of ditto; see [PersonalStepsSeed]. Both are nil without.
	OwnParameters []T
	DittoRand     *rand.Rand
	// RiskSampleSeed seeds which rows the risks are reported on, if there are more than MaxRiskSampleRows; see
	// [RiskSampleSeed].
	RiskSampleSeed uint64
}

// LocalOutcome is what an agent sends in.
type LocalOutcome[T learner.Float] struct {
	UpdateVector     []T     // Δ_k = ψ_k − w_{i−1} of what is shared, or g_k for gradient exchange
	OwnParameters    []T     // what the agent's own has come to; nil if nothing is
	DittoResetReason error   // why ditto's v_k could not go on, and has begun anew as w_{i−1}; else nil
	StepsTaken       int     // e ≤ E_k that were really taken
	RiskBefore       float64 // at the base, over the job's RiskSample
	RiskAfter        float64 // after the steps
}

// RunLocalSteps does an agent's part of a training round without neighbours: all local steps of a [TaskStepRunner], and
// their outcome.
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

// checkOutcomeFinite keeps numbers from leaving the device that no one would take.
func checkOutcomeFinite[T learner.Float](out LocalOutcome[T]) error {
	if i := learner.FirstNonFiniteIndex(out.UpdateVector); i >= 0 {
		return &learner.DivergenceError{Step: out.StepsTaken,
			Problem: fmt.Sprintf("element %d of the update is %v", i, out.UpdateVector[i])}
	}
	if x := out.RiskBefore + out.RiskAfter; x-x != 0 {
		return &learner.DivergenceError{Step: out.StepsTaken, Problem: fmt.Sprintf("the risk is %v", x)}
	}
	return nil
}

// StatisticsVector returns an agent's vector for the statistics round, [n, mean_1 … mean_m, squares_1 … squares_m] over
// the features and the target: see [learner.ColumnMoments.Vector]. With fewer rows than the task's MinSamples it is an
// error, so that no statistics leave the device.
func (p *CompiledTask[T]) StatisticsVector(s *learner.Samples[T]) ([]float64, error) {
	return p.momentsVector(s, learner.ComputeColumnMoments)
}

// RobustStatisticsVector is StatisticsVector with each outlier replaced by the median of its column: see
// [learner.RobustColumnMoments].
func (p *CompiledTask[T]) RobustStatisticsVector(s *learner.Samples[T]) ([]float64, error) {
	return p.momentsVector(s, learner.RobustColumnMoments)
}

func (p *CompiledTask[T]) momentsVector(s *learner.Samples[T],
	of func(*learner.Samples[T]) *learner.ColumnMoments) ([]float64,
	error) {
	if n := uint64(s.Len()); n < p.Task.MinSamples {
		return nil, fmt.Errorf("%d rows, fewer than the %d that may be spoken of", n, p.Task.MinSamples)
	}
	v := of(s).Vector()
	for i, x := range v {
		if x-x != 0 {
			return nil, fmt.Errorf("sum %d is %v: %w", i, x, wire.ErrNotFinite)
		}
	}
	return v, nil
}
