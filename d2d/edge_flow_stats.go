package d2d

import (
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// maxSampledParameters bounds the parameters in which a neighbour's steps are watched, evenly spaced.
const maxSampledParameters = 256

// edgeFlowStats is what one end of an edge has seen of the flows since the last answer. It tells a neighbour that lies
// from one that is only far away: an agent that mixes moves towards this end by about the weight of the edge, as the
// flow that it adds is the negative of the one here; one that says always the same does not.
type edgeFlowStats struct {
	flowCount, clippedCount uint32
	distanceSum             float64 // sum of ‖x_j − x_i‖
	squaredDifferenceSum,
	neighborResponseSum float64 // Σ‖d‖² and Σ⟨x_j' − x_j, d⟩ of the sampled parameters, where d = x_i − x_j
	lastTheirSample, lastDifference []float64 // x_j and d at the last flow
}

// clippedWeight is the weight with which an edge carries the flow between its two snapshots. It keeps watch where flows
// are bounded.
func (e *mixingEdge[T]) clippedWeight() T {
	if e.clipBound == 0 {
		return e.mixingWeight
	}
	d := ParameterDistance(e.ownSnapshot.parameters, e.theirParameters)
	w := ClippedFlowWeight(e.mixingWeight, e.clipBound, d)
	e.flowStats.flowCount++
	e.flowStats.distanceSum += d
	if d > e.clipBound {
		e.flowStats.clippedCount++
	}
	step := (len(e.theirParameters) + maxSampledParameters - 1) / maxSampledParameters
	first := e.flowStats.lastTheirSample == nil
	for k, at := 0, 0; at < len(e.theirParameters); k, at = k+1, at+step {
		x := float64(e.theirParameters[at])
		pull := float64(e.ownSnapshot.parameters[at]) - x
		if first {
			e.flowStats.lastTheirSample, e.flowStats.lastDifference = append(e.flowStats.lastTheirSample, x),
				append(e.flowStats.lastDifference, pull)
			continue
		}
		e.flowStats.neighborResponseSum += (x - e.flowStats.lastTheirSample[k]) * e.flowStats.lastDifference[k]
		e.flowStats.squaredDifferenceSum += e.flowStats.lastDifference[k] * e.flowStats.lastDifference[k]
		e.flowStats.lastTheirSample[k], e.flowStats.lastDifference[k] = x, pull
	}
	return w
}

// takeEdgeMeasurements returns what was seen of the edges since the last call, by id.
func (m *mixer[T]) takeEdgeMeasurements() []wire.MixingEdgeMeasurement {
	var all []wire.MixingEdgeMeasurement
	for _, e := range m.edges {
		w := &e.flowStats
		if w.flowCount == 0 {
			continue
		}
		s := wire.MixingEdgeMeasurement{NeighborID: e.id, AppliedFlows: w.flowCount, ClippedFlows: w.clippedCount,
			MeanParameterDistance: min(w.distanceSum/float64(w.flowCount), math.MaxFloat64), MixingResponseRatio: 1}
		if w.squaredDifferenceSum > 0 {
			s.MixingResponseRatio = w.neighborResponseSum / w.squaredDifferenceSum
		}
		if s.MixingResponseRatio-s.MixingResponseRatio != 0 { // it is not finite
			s.MixingResponseRatio = 0
		}
		all = append(all, s)
		*w = edgeFlowStats{lastTheirSample: w.lastTheirSample, lastDifference: w.lastDifference}
	}
	return all
}
