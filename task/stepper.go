package task

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
)

// Stepper takes the H local steps of an agent that mixes with its neighbours
// between them (feddec Alg. 1, lines 5–6): one at a time, on parameters that
// others change in between.
//
// H is the task's MaxSteps and common to all agents. An agent that affords only
// E_k < H gradients spreads them evenly over the block, each scaled by H/E_k;
// it mixes at all steps. The schedule counts all H.
type Stepper[T learner.Float] struct {
	problem *Problem[T]
	descent learner.Descent[T]
	job     Job[T]
	block   uint64 // H
	taken   int
}

// Stepper prepares the local steps of a block; j.Steps is E_k, at most H.
func (p *Problem[T]) Stepper(j Job[T]) (*Stepper[T], error) {
	block := uint64(p.Task.Training.MaxSteps)
	if j.Steps < 1 || uint64(j.Steps) > block {
		return nil, fmt.Errorf("%d gradients in a block of %d local steps", j.Steps, block)
	}
	draws := &learner.Sampler[T]{Construction: p.Construction(), Data: j.Samples, Rand: j.Rand}
	if err := draws.Validate(p.Model); err != nil {
		return nil, err
	}
	j.Weight *= float64(block) / float64(j.Steps)
	d := learner.Descent[T]{Model: p.Model, Draws: draws, Schedule: p.Schedule}
	return &Stepper[T]{problem: p, descent: d, job: j, block: block}, nil
}

// Step takes local step t, from 1 to H, in place on x. Where blocks have no end t goes on beyond H.
func (s *Stepper[T]) Step(x []T, t uint64) error {
	if !spread(t, s.block, uint64(s.job.Steps)) {
		return nil
	}
	n, err := s.descent.Run(x, 1, s.job.Weight, s.job.Offset+t-1, s.job.Stop)
	s.taken += n
	if err == nil && n == 0 {
		err = ErrStopped
	}
	return err
}

// ErrStopped reports a block that was stopped before its last local step.
var ErrStopped = errors.New("stopped in the middle of a block")

// Outcome returns what the agent has after its block: Δ_k = x − w_{i−1}.
func (s *Stepper[T]) Outcome(x []T) (Outcome[T], error) { return s.OutcomeFrom(s.job.Base, x) }

// OutcomeFrom returns what the agent has by now, as a change of a model w_{i−1}, and begins to count its steps anew.
func (s *Stepper[T]) OutcomeFrom(base, x []T) (Outcome[T], error) {
	all := s.job.Samples.All()
	out := Outcome[T]{
		Vector: slices.Clone(x), Steps: s.taken,
		RiskBefore: s.problem.Model.Risk(base, all), RiskAfter: s.problem.Model.Risk(x, all),
	}
	s.taken = 0
	for i, w := range base {
		out.Vector[i] -= w
	}
	return out, checkFinite(out)
}

// spread tells whether local step t of h, from 1, is one of the e that take a gradient.
func spread(t, h, e uint64) bool { return t*e/h != (t-1)*e/h }
