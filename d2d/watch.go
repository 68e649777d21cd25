package d2d

import (
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// sampled bounds the parameters in which a neighbour's steps are watched, evenly spaced.
const sampled = 256

// watch is what one end of an edge has seen of the flows since the last answer. It tells a neighbour that lies from one
// that is only far away: an agent that mixes moves towards this end by about the weight of the edge, as the flow that
// it adds is the negative of the one here; one that says always the same does not.
type watch struct {
	flows, clipped  uint32
	distance        float64   // sum of ‖x_j − x_i‖
	pulled, yielded float64   // Σ‖d‖² and Σ⟨x_j' − x_j, d⟩ of the sampled parameters, where d = x_i − x_j
	theirs, pull    []float64 // x_j and d at the last flow
}

// bounded is the weight with which an edge carries the flow between its two snapshots. It keeps watch where flows are
// bounded.
func (e *edge[T]) bounded() T {
	if e.clip == 0 {
		return e.weight
	}
	d := Distance(e.own.x, e.theirs)
	w := Clip(e.weight, e.clip, d)
	e.watch.flows++
	e.watch.distance += d
	if d > e.clip {
		e.watch.clipped++
	}
	step := (len(e.theirs) + sampled - 1) / sampled
	first := e.watch.theirs == nil
	for k, at := 0, 0; at < len(e.theirs); k, at = k+1, at+step {
		x := float64(e.theirs[at])
		pull := float64(e.own.x[at]) - x
		if first {
			e.watch.theirs, e.watch.pull = append(e.watch.theirs, x), append(e.watch.pull, pull)
			continue
		}
		e.watch.yielded += (x - e.watch.theirs[k]) * e.watch.pull[k]
		e.watch.pulled += e.watch.pull[k] * e.watch.pull[k]
		e.watch.theirs[k], e.watch.pull[k] = x, pull
	}
	return w
}

// seen returns what was seen of the edges since the last call, by id.
func (m *mixer[T]) seen() []wire.Seen {
	var all []wire.Seen
	for _, e := range m.edges {
		w := &e.watch
		if w.flows == 0 {
			continue
		}
		s := wire.Seen{ID: e.id, Flows: w.flows, Clipped: w.clipped,
			Distance: min(w.distance/float64(w.flows), math.MaxFloat64), Yield: 1}
		if w.pulled > 0 {
			s.Yield = w.yielded / w.pulled
		}
		if s.Yield-s.Yield != 0 { // it is not finite
			s.Yield = 0
		}
		all = append(all, s)
		*w = watch{theirs: w.theirs, pull: w.pull}
	}
	return all
}
