package task

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Stepper takes the local steps of an agent's part of a training round.
//
// Without neighbours these are E_k steps
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ_k(φ_{k,e−1}),  Δ_k = φ_{k,E_k} − w_{i−1}   (ch5 (5.9)–(5.10), notes Alg. 1)
//
// or, for gradient exchange, g_k = ĝ_k(w_{i−1}) (lecture (13), (33)). An agent that is stopped after e < E_k steps
// sends Δ_k·E_k/e, which keeps the average unbiased.
//
// An agent that mixes with its neighbours takes the H local steps between two models of the server (feddec Alg. 1,
// lines 5–6), on parameters that others change in between. H is the task's MaxSteps and common to all agents. An agent
// that affords only E_k < H gradients spreads them evenly over the block, each scaled by H/E_k; it mixes at all steps.
// The schedule counts all H.
type Stepper[T learner.Float] struct {
	problem  *Problem[T]
	descent  learner.Descent[T]
	job      Job[T]
	block    uint64 // H; 0 without neighbours
	gradient []T    // ĝ_k, for gradient exchange
	taken    int
}

// Stepper prepares local steps; j.Steps is E_k, at most H.
func (p *Problem[T]) Stepper(j Job[T]) (*Stepper[T], error) {
	draws := &learner.Sampler[T]{Construction: p.Construction(), Data: j.Samples, Rand: j.Rand}
	if err := draws.Validate(p.Model); err != nil {
		return nil, err
	}
	s := &Stepper[T]{problem: p, job: j,
		descent: learner.Descent[T]{Model: p.Model, Draws: draws, Schedule: p.Schedule, By: learner.Correction[T]{
			Proximal: p.Task.Training.Proximal, Anchor: j.Base,
			Frozen: p.Model.Architecture().Ranges(p.Task.Model.Frozen),
		}}}
	switch training := &p.Task.Training; {
	case p.Task.Mixing.Every > 0:
		s.block = uint64(training.MaxSteps)
		if j.Steps < 1 || uint64(j.Steps) > s.block {
			return nil, fmt.Errorf("%d gradients in a block of %d local steps", j.Steps, s.block)
		}
		s.job.Weight *= float64(s.block) / float64(j.Steps)
	case training.Exchange == spec.ExchangeGradient:
		s.gradient = make([]T, len(j.Base))
	default:
		s.descent.Normalize = training.Normalize
	}
	return s, nil
}

// Take takes local steps first to last, counted from 1, in place on x. Where blocks have no end they go on beyond H.
// Without neighbours all steps are taken at once, from 1 to E_k. The error is a *learner.DivergenceError when the
// numbers left the finite ones, or ErrStopped.
func (s *Stepper[T]) Take(x []T, first, last uint64) error {
	switch {
	case s.gradient != nil:
		s.descent.GradientAt(s.gradient, x)
		s.taken = 1
		return nil
	case s.block == 0:
		return s.run(x, int(last-first+1), first)
	}
	for t := first; t <= last; t++ {
		if !spread(t, s.block, uint64(s.job.Steps)) {
			continue
		}
		before := s.taken
		if err := s.run(x, 1, t); err != nil {
			return err
		}
		if s.taken == before {
			return ErrStopped
		}
	}
	return nil
}

// run takes steps t to t + n − 1.
func (s *Stepper[T]) run(x []T, n int, t uint64) error {
	taken, err := s.descent.Run(x, n, s.job.Weight, s.job.Offset+t-1, s.job.Stop)
	s.taken += taken
	return err
}

// ErrStopped reports a block that was stopped before its last local step.
var ErrStopped = errors.New("stopped in the middle of a block")

// ErrNoSteps reports a job that was stopped before its first local step.
var ErrNoSteps = errors.New("stopped before the first local step")

// Outcome returns what the agent has after its local steps, as a change of the model that they began with.
func (s *Stepper[T]) Outcome(x []T) (Outcome[T], error) { return s.OutcomeFrom(s.job.Base, x) }

// OutcomeFrom returns what the agent has by now, as a change of a model w_{i−1}, and begins to count its steps anew.
// The error is a *learner.DivergenceError, or ErrNoSteps.
func (s *Stepper[T]) OutcomeFrom(base, x []T) (Outcome[T], error) {
	all := s.job.Samples.All()
	out := Outcome[T]{Vector: s.gradient, Steps: s.taken, RiskBefore: s.problem.Model.Risk(base, all)}
	s.taken = 0
	if s.gradient != nil {
		out.RiskAfter = out.RiskBefore
		return out, checkFinite(out)
	}
	stretch := T(1)
	if s.block == 0 {
		if out.Steps == 0 {
			return out, ErrNoSteps
		}
		stretch = T(float64(s.job.Steps) / float64(out.Steps))
	}
	out.Vector, out.RiskAfter = slices.Clone(x), s.problem.Model.Risk(x, all)
	for i, w := range base {
		out.Vector[i] = T(stretch * (out.Vector[i] - w))
	}
	return out, checkFinite(out)
}

// spread tells whether local step t of h, from 1, is one of the e that take a gradient.
func spread(t, h, e uint64) bool { return t*e/h != (t-1)*e/h }
