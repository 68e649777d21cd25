package sim

import (
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// feedback simulates the error feedback of a lossy codec, as in agent.residual. The part of an update that the codec
// did not send is added to the next update of the same agent. The residual also depends on whether the server used the
// update.
type feedback[T learner.Float] struct {
	kept            [][]T // residual (unsent part) of each agent; nil means 0
	intendedUpdates [][]T // update of each participant before compression
	unsentParts     [][]T // part of each update that the codec did not send
}

// newFeedback returns the error feedback of a codec, or nil for a codec without error feedback.
func newFeedback[T learner.Float](word spec.Codec, agents int) *feedback[T] {
	if _, ok := word.TopKShare(); !ok {
		return nil
	}
	return &feedback[T]{kept: make([][]T, agents)}
}

// add adds the agent's residual to its update v and compresses v. pass is the lossy compression.
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

// updateResiduals updates the residuals at the end of a round. out contains the participants whose updates the
// aggregation rule has excluded. If the round was abandoned, the agents keep their whole updates.
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
