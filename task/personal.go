package task

import "github.com/fedmesh/fedmesh/learner"

// OwnSteps returns local steps of a model v that is an agent's own, of Ditto (Li et al. 2021) and of fine-tuning:
//
//	v ← v − μ_t (ĝ_k(v) + λ(v − anchor))
//
// μ_t is that of the schedule, and t counts from offset + 1. K·p_k and 1/E_k are left out: they balance agents in an
// average, and v is in none. d is the descent of the agent's other steps, with draws of v's own; anchor is read only
// where λ is not 0.
func OwnSteps[T learner.Float](d learner.Descent[T], lambda float64, anchor []T, offset uint64) Steps[T] {
	d.Normalize = false
	d.By.Proximal, d.By.Anchor = lambda, anchor
	return Steps[T]{Descent: d, Weight: 1, Offset: offset}
}
