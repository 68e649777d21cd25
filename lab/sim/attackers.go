package sim

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
)

// drawLiars draws the dishonest agents of a run.
func (c *runConstants[T]) drawLiars() (err error) {
	if c.e.Attack == "" {
		return nil
	}
	c.attack, err = attack.Parse(c.e.Attack)
	c.liars = map[int]bool{}
	for _, k := range rand.New(rand.NewPCG(data.Mix(c.seed, forAttackers), 0)).Perm(c.agents)[:c.e.Attackers] {
		c.liars[k] = true
	}
	return err
}

// falsified returns a loader that flips the targets of dishonest agents if the attack requires it.
func (c *runConstants[T]) falsified(load data.Loader[T]) data.Loader[T] {
	if !c.attack.FlipsLabels() {
		return load
	}
	model, rows := c.in.Problem.Model, map[int]*learner.Samples[T]{}
	return func(k int) data.Local[T] {
		local := load(k)
		switch {
		case !c.liars[k]:
		case local.Stream != nil:
			local.Stream = falseStream[T]{local.Stream, model}
		case local.Samples != nil:
			if rows[k] == nil {
				rows[k] = attack.Flip(model, local.Samples)
			}
			local.Samples = rows[k]
		}
		return local
	}
}

// falseStream is a sample stream with flipped targets.
type falseStream[T learner.Float] struct {
	learner.SampleStream[T]
	model learner.Architecture
}

// Sample implements learner.SampleStream.
func (s falseStream[T]) Sample(x []T) T { return attack.FlipLabel(s.model, s.SampleStream.Sample(x)) }

// collude replaces the updates of colluding agents by an update that is computed from the honest updates.
func (s *server[T]) collude() {
	var honest [][]T
	for k, p := range s.places {
		if !s.liars[p.Index] {
			honest = append(honest, s.rows[k])
		}
	}
	attack.Collude(s.attack, s.change, honest)
	for k, p := range s.places {
		if s.liars[p.Index] {
			copy(s.rows[k], s.change)
			s.pack(k, s.rows[k])
			s.remember(k, s.rows[k])
		}
	}
}
