package round

import (
	"fmt"
	"maps"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// seenOnRing is what six agents on a ring of weight 0.2 have measured, after a change or none.
func seenOnRing(change func(by, of int, s *wire.Seen)) *watched {
	w := &watched{weights: map[between]float64{}, seen: map[between]wire.Seen{}}
	for i := range 6 {
		for _, j := range []int{(i + 1) % 6, (i + 5) % 6} {
			a, b := wire.AgentID(fmt.Sprint("a", i)), wire.AgentID(fmt.Sprint("a", j))
			s := wire.Seen{ID: b, Flows: 10, Distance: 1 + float64(i)/10, Yield: 0.2}
			change(i, j, &s)
			w.weights[betweenOf(a, b)], w.seen[between{a, b}] = 0.2, s
		}
	}
	return w
}

// Edges are left out whose ends are far apart, or whose one end does not move, by what both its neighbours say. What one
// agent says ends its own edges at most, and nothing ends where all are alike.
func TestJudgedEdges(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(by, of int, s *wire.Seen)
		want   map[between]wire.EndReason
	}{
		{"all well", func(int, int, *wire.Seen) {}, nil},
		{"an agent says what is far off", func(_, of int, s *wire.Seen) {
			if of == 2 {
				s.Distance = 5e30
			}
		}, map[between]wire.EndReason{{"a1", "a2"}: wire.EndFar, {"a2", "a3"}: wire.EndFar}},
		{"an agent whose data differ", func(_, of int, s *wire.Seen) {
			if of == 2 {
				s.Distance = 20
			}
		}, nil},
		{"an agent says always the same", func(_, of int, s *wire.Seen) {
			if of == 2 {
				s.Yield = 0.01
			}
		}, map[between]wire.EndReason{{"a1", "a2"}: wire.EndStill, {"a2", "a3"}: wire.EndStill}},
		{"one neighbour alone says so", func(by, of int, s *wire.Seen) {
			if by == 1 && of == 2 {
				s.Yield = 0.01
			}
		}, map[between]wire.EndReason{}},
		{"all are at rest", func(_, of int, s *wire.Seen) { s.Yield = 0.01 * float64(of%2) }, nil},
	} {
		got := map[between]wire.EndReason{}
		w := seenOnRing(tt.change)
		if w.far(got); len(got) == 0 {
			w.still(got)
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
