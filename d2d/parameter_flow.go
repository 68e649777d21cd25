package d2d

import (
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// AddParameterFlow adds the flow weight·(neighbour − own) of one edge to dst, element by element. The difference, the
// product and the sum are each rounded to T, so the other end of the edge adds the exact negative of this flow. All
// flows of a step use the vectors before the step. Therefore dst may be own only if no later flow of the step needs
// own.
//
// AddParameterFlow panics if the lengths of the vectors differ.
func AddParameterFlow[T wire.Float](dst []T, weight T, own, neighbour []T) {
	if len(own) != len(dst) || len(neighbour) != len(dst) {
		panic(fmt.Sprintf("d2d: AddParameterFlow: lengths differ: the vectors have %d and %d elements, the "+
			"destination has %d", len(own), len(neighbour), len(dst)))
	}
	for k, x := range own {
		dst[k] += T(weight * (neighbour[k] - x))
	}
}

// addTwoParameterFlows is equivalent to two calls of AddParameterFlow, but needs only one pass over dst.
func addTwoParameterFlows[T wire.Float](dst []T, own []T, v, w T, a, b []T) {
	own, a, b = own[:len(dst)], a[:len(dst)], b[:len(dst)]
	for k, sum := range dst {
		x := own[k]
		sum += T(v * (a[k] - x))
		sum += T(w * (b[k] - x))
		dst[k] = sum
	}
}

// addFourParameterFlows is equivalent to four calls of AddParameterFlow, but needs only one pass over dst.
func addFourParameterFlows[T wire.Float](dst []T, own []T, weights [4]T, a, b, c, d []T) {
	own, a, b, c, d = own[:len(dst)], a[:len(dst)], b[:len(dst)], c[:len(dst)], d[:len(dst)]
	u, v, w, z := weights[0], weights[1], weights[2], weights[3]
	for k, sum := range dst {
		x := own[k]
		sum += T(u * (a[k] - x))
		sum += T(v * (b[k] - x))
		sum += T(w * (c[k] - x))
		sum += T(z * (d[k] - x))
		dst[k] = sum
	}
}
