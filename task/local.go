package task

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Job is what an agent is asked to compute in a training round.
type Job[T learner.Float] struct {
	Base    []T // w_{i−1}; not changed
	Samples *learner.Samples[T]
	Weight  float64     // K·p_k, or 1 where the server weights
	Offset  uint64      // t: local steps of the schedule before this round
	Steps   int         // E_k
	Rand    *rand.Rand  // see [learner.Sampler] for what is drawn and in which order
	Stop    func() bool // polled between steps; nil = never
}

// Outcome is what an agent sends in.
type Outcome[T learner.Float] struct {
	Vector     []T // Δ_k = ψ_k − w_{i−1}, or g_k for gradient exchange
	Steps      int // e ≤ E_k that were really taken
	RiskBefore float64
	RiskAfter  float64
}

// ErrNoSteps reports a job that was stopped before its first local step.
var ErrNoSteps = errors.New("stopped before the first local step")

// Local does an agent's part of one training round: E_k local steps
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ_k(φ_{k,e−1}),  Δ_k = φ_{k,E_k} − w_{i−1}   (ch5 (5.9)–(5.10), notes Alg. 1)
//
// or, for gradient exchange, g_k = ĝ_k(w_{i−1}) (lecture (13), (33)). An agent
// that is stopped after e < E_k steps sends Δ_k·E_k/e, which keeps the average
// unbiased. The error is a *learner.DivergenceError when the numbers left the
// finite ones.
func (p *Problem[T]) Local(j Job[T]) (Outcome[T], error) {
	draws := learner.Sampler[T]{Construction: p.Construction(), Data: j.Samples, Rand: j.Rand}
	if err := draws.Validate(p.Model); err != nil {
		return Outcome[T]{}, err
	}
	d := learner.Descent[T]{Model: p.Model, Draws: &draws, Schedule: p.Schedule, Normalize: p.Task.Training.Normalize}
	all := j.Samples.All()
	out := Outcome[T]{Vector: make([]T, len(j.Base)), RiskBefore: p.Model.Risk(j.Base, all)}
	if p.Task.Training.Exchange == spec.ExchangeGradient {
		d.GradientAt(out.Vector, j.Base)
		out.Steps, out.RiskAfter = 1, out.RiskBefore
		return out, checkFinite(out)
	}
	psi := out.Vector
	copy(psi, j.Base)
	taken, err := d.Run(psi, j.Steps, j.Weight, j.Offset, j.Stop)
	switch {
	case err != nil:
		return out, err
	case taken == 0:
		return out, ErrNoSteps
	}
	out.Steps, out.RiskAfter = taken, p.Model.Risk(psi, all)
	stretch := T(float64(j.Steps) / float64(taken))
	for i, x := range psi {
		out.Vector[i] = T(stretch * (x - j.Base[i]))
	}
	return out, checkFinite(out)
}

// checkFinite keeps numbers from leaving the device that no one would take.
func checkFinite[T learner.Float](out Outcome[T]) error {
	for i, x := range out.Vector {
		if x-x != 0 {
			return &learner.DivergenceError{Step: out.Steps, What: fmt.Sprintf("element %d of the update is %v", i, x)}
		}
	}
	if x := out.RiskBefore + out.RiskAfter; x-x != 0 {
		return &learner.DivergenceError{Step: out.Steps, What: fmt.Sprintf("the risk is %v", x)}
	}
	return nil
}

// Statistics returns an agent's part of the statistics round:
// [n, s_1 … s_m, q_1 … q_m] over its features and the target. All that leaves
// the device are these counts, sums and sums of squares, and nothing does when
// there are fewer than the task's MinSamples rows.
func (p *Problem[T]) Statistics(s *learner.Samples[T]) ([]float64, error) {
	if n := uint64(s.Len()); n < p.Task.MinSamples {
		return nil, fmt.Errorf("%d rows, fewer than the %d that may be spoken of", n, p.Task.MinSamples)
	}
	v := learner.MomentsOf(s).Vector()
	for i, x := range v {
		if x-x != 0 {
			return nil, fmt.Errorf("sum %d is %v: %w", i, x, wire.ErrNotFinite)
		}
	}
	return v, nil
}
