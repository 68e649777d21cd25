package d2d

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// ParameterDistance returns the Euclidean distance ‖b − a‖. Differences and squares are computed in float64, summed in
// index order and rounded individually. Therefore ParameterDistance(a, b) and ParameterDistance(b, a) are bitwise equal
// on every processor. The result may overflow to +Inf.
//
// ParameterDistance panics if the lengths of a and b differ.
func ParameterDistance[T wire.Float](a, b []T) float64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("d2d: ParameterDistance: the vectors have different lengths, %d and %d", len(a), len(b)))
	}
	sum := 0.0
	for k, x := range a {
		d := float64(b[k]) - float64(x)
		sum += float64(d * d)
	}
	return math.Sqrt(sum)
}

// ClippedFlowWeight returns the weight of a flow between two vectors on an edge with the weight w and the clip bound
// tau: w·min(1, tau/distance). The flow then changes the parameters of each end by at most w·tau (He, Karimireddy and
// Jaggi 2022, with one bound for both ends). Both ends compute the same weight, so the sum of their vectors is
// conserved. A tau of 0 means no bound. If the type T cannot represent the distance, the weight is 0.
func ClippedFlowWeight[T wire.Float](weight T, tau, distance float64) T {
	switch {
	case tau == 0 || distance <= tau:
		return weight
	case math.IsInf(float64(T(distance)), 1):
		return 0
	}
	return T(float64(weight) * (tau / distance))
}

// ClipNodeFlowWeights computes the clipped weights, for one step, of the edges between node i and its neighbours with
// higher numbers. It sets dst[k] to the [ClippedFlowWeight] of weights[k], rounded to T, for the vectors sent by the
// ends of edge k. Like the weights of [MixAllNodes], dst and weights contain one weight per edge. Different nodes may
// be processed concurrently.
func ClipNodeFlowWeights[T wire.Float](dst []float64, i int, sent [][]T, links *Adjacency, weights []float64,
	tau float64) {
	for _, l := range links.entries[links.entryOffsets[i]:links.entryOffsets[i+1]] {
		if int(l.node) < i {
			continue
		}
		w := T(weights[l.edge])
		if w != 0 {
			w = ClippedFlowWeight(w, tau, ParameterDistance(sent[i], sent[l.node]))
		}
		dst[l.edge] = float64(w)
	}
}
