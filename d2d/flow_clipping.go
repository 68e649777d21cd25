package d2d

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// ParameterDistance returns ‖b − a‖. The differences are taken and their squares added in float64, in index order and
// each rounded on its own, so ParameterDistance(a, b) and ParameterDistance(b, a) are the same bits, on every
// processor. It overflows to +Inf.
//
// It panics when the lengths differ.
func ParameterDistance[T wire.Float](a, b []T) float64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("d2d: distance of vectors of %d and %d elements", len(a), len(b)))
	}
	sum := 0.0
	for k, x := range a {
		d := float64(b[k]) - float64(x)
		sum += float64(d * d)
	}
	return math.Sqrt(sum)
}

// ClippedFlowWeight returns the weight with which an edge of bound tau carries a flow between two vectors at that
// distance: w·min(1, tau/distance), so that the flow moves either end by at most w·tau (He, Karimireddy and Jaggi 2022,
// with one bound for both ends). The two ends get the same weight from the same numbers, and so the sum of their
// vectors stays what it was. tau 0 bounds nothing. Where T cannot hold the difference the weight is 0, and there is no
// flow.
func ClippedFlowWeight[T wire.Float](weight T, tau, distance float64) T {
	switch {
	case tau == 0 || distance <= tau:
		return weight
	case math.IsInf(float64(T(distance)), 1):
		return 0
	}
	return T(float64(weight) * (tau / distance))
}

// ClipNodeFlowWeights sets the weights of the edges between node i and the nodes after it to those with which they
// carry the flows of one step: dst[k] is [ClippedFlowWeight] of weights[k], rounded to T, for what their ends have
// sent. dst and weights have one weight an edge, as for [MixAllNodes]. Rows may be made at the same time.
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
