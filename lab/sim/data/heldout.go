package data

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
)

// HoldOut splits the rows of each agent in the same way as the agent's setting `evaluation.held_out`. It holds out the
// given share of the rows, from the end, but at least one row. It returns an error if an agent has only one row.
func HoldOut[T learner.Float](held []*learner.Samples[T], share float64) (trained, out []*learner.Samples[T],
	err error) {
	for k, s := range held {
		n := s.Len() - max(1, int(share*float64(s.Len())))
		if n < 1 {
			return nil, nil, fmt.Errorf("agent %d has %d rows; want at least 2", k, s.Len())
		}
		trained, out = append(trained, s.FirstSamples(n)), append(out, s.SkipFirstSamples(n))
	}
	return trained, out, nil
}
