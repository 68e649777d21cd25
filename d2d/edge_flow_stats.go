package d2d

import (
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// maxSampledParameters is the maximum number of evenly spaced parameters that are used to measure a neighbour's
// response to mixing.
const maxSampledParameters = 256

// edgeFlowStats holds statistics, at one end of an edge, of the flows since the last report. The statistics distinguish
// a malicious neighbour from a distant neighbour. A neighbour that mixes moves towards this agent by about the weight
// of the edge. A neighbour that always sends the same values does not move.
type edgeFlowStats struct {
	flowCount, clippedCount uint32
	distanceSum             float64 // sum of the distances ‖x_j − x_i‖ between the parameters of the two ends
	squaredDifferenceSum,
	neighborResponseSum float64
	lastTheirSample, lastDifference []float64
}

// clippedWeight returns the clipped weight of the flow between the two snapshots of an edge. If the edge has a clip
// bound, clippedWeight also updates flowStats.
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

// takeEdgeMeasurements returns the measurements of all edges since the last call, in ascending order of neighbour id.
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
		if s.MixingResponseRatio-s.MixingResponseRatio != 0 { // true if the ratio is NaN or infinite
			s.MixingResponseRatio = 0
		}
		all = append(all, s)
		*w = edgeFlowStats{lastTheirSample: w.lastTheirSample, lastDifference: w.lastDifference}
	}
	return all
}
