package sim

import (
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// feedback is what agents keep of what a codec has not sent, as agent.residual does: it goes with the next update, by
// what became of this one.
type feedback[T learner.Float] struct {
	kept            [][]T // of the agents; nil = 0
	intendedUpdates [][]T // of the places of a round: what was to be sent
	unsentParts     [][]T // of the places: what was not
}

// newFeedback returns nil for a codec of which nothing is kept.
func newFeedback[T learner.Float](word spec.Codec, agents int) *feedback[T] {
	if _, ok := word.TopKShare(); !ok {
		return nil
	}
	return &feedback[T]{kept: make([][]T, agents)}
}

// add makes of an agent's change what it is to send at a place. pass is what the codec does to it.
func (f *feedback[T]) add(k, agent int, v []T, pass func(v []T)) {
	if f == nil {
		pass(v)
		return
	}
	for len(f.intendedUpdates) <= k {
		f.intendedUpdates, f.unsentParts = append(f.intendedUpdates, nil), append(f.unsentParts, nil)
	}
	for j, e := range f.kept[agent] {
		v[j] += e
	}
	f.intendedUpdates[k] = append(f.intendedUpdates[k][:0], v...)
	pass(v)
	f.unsentParts[k] = f.unsentParts[k][:0]
	for j, x := range f.intendedUpdates[k] {
		f.unsentParts[k] = append(f.unsentParts[k], x-v[j])
	}
}

// updateResiduals ends a round: out are the places that a rule has left out. One that is abandoned leaves all with the
// agents.
func (f *feedback[T]) updateResiduals(agents []int, abandoned bool, out []int) {
	if f == nil {
		return
	}
	for k, at := range agents {
		switch {
		case abandoned:
			f.kept[at] = append(f.kept[at][:0], f.intendedUpdates[k]...)
		case slices.Contains(out, k):
			f.kept[at] = nil
		default:
			f.kept[at] = append(f.kept[at][:0], f.unsentParts[k]...)
		}
	}
}
