package d2d

import (
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// maxSampledParameters bounds the parameters in which a neighbour's steps are watched, evenly spaced.
const maxSampledParameters = 256

// flowWatch is what one end of an edge has seen of the flows since the last answer. It tells a neighbour that lies from
// one that is only far away: an agent that mixes moves towards this end by about the weight of the edge, as the flow
// that it adds is the negative of the one here; one that says always the same does not.
type flowWatch struct {
	flows, clipped uint32
	distanceSum    float64 // sum of ‖x_j − x_i‖
	squaredDifferenceSum,
	responseSum float64 // Σ‖d‖² and Σ⟨x_j' − x_j, d⟩ of the sampled parameters, where d = x_i − x_j
	lastTheirSample, lastDifference []float64 // x_j and d at the last flow
}

// clippedWeight is the weight with which an edge carries the flow between its two snapshots. It keeps watch where flows
// are bounded.
func (e *edge[T]) clippedWeight() T {
	if e.flowBound == 0 {
		return e.weight
	}
	d := Distance(e.own.x, e.theirParameters)
	w := Clip(e.weight, e.flowBound, d)
	e.flowWatch.flows++
	e.flowWatch.distanceSum += d
	if d > e.flowBound {
		e.flowWatch.clipped++
	}
	step := (len(e.theirParameters) + maxSampledParameters - 1) / maxSampledParameters
	first := e.flowWatch.lastTheirSample == nil
	for k, at := 0, 0; at < len(e.theirParameters); k, at = k+1, at+step {
		x := float64(e.theirParameters[at])
		pull := float64(e.own.x[at]) - x
		if first {
			e.flowWatch.lastTheirSample, e.flowWatch.lastDifference = append(e.flowWatch.lastTheirSample, x),
				append(e.flowWatch.lastDifference, pull)
			continue
		}
		e.flowWatch.responseSum += (x - e.flowWatch.lastTheirSample[k]) * e.flowWatch.lastDifference[k]
		e.flowWatch.squaredDifferenceSum += e.flowWatch.lastDifference[k] * e.flowWatch.lastDifference[k]
		e.flowWatch.lastTheirSample[k], e.flowWatch.lastDifference[k] = x, pull
	}
	return w
}

// takeSeenEdges returns what was seen of the edges since the last call, by id.
func (m *mixer[T]) takeSeenEdges() []wire.EdgeMeasurement {
	var all []wire.EdgeMeasurement
	for _, e := range m.edges {
		w := &e.flowWatch
		if w.flows == 0 {
			continue
		}
		s := wire.EdgeMeasurement{ID: e.id, AppliedFlows: w.flows, Clipped: w.clipped,
			Distance: min(w.distanceSum/float64(w.flows), math.MaxFloat64), PullResponse: 1}
		if w.squaredDifferenceSum > 0 {
			s.PullResponse = w.responseSum / w.squaredDifferenceSum
		}
		if s.PullResponse-s.PullResponse != 0 { // it is not finite
			s.PullResponse = 0
		}
		all = append(all, s)
		*w = flowWatch{lastTheirSample: w.lastTheirSample, lastDifference: w.lastDifference}
	}
	return all
}
