//go:build amd64 || arm64

package learner

// dot4 fills dst with wᵀx for four rows of w, one behind the other, of n ≥ 32 elements each. It adds in the
// order of the dot product that a kernel has for one row (gonum's on amd64, dotLoop on arm64), so it gives the same
// bits, and four sums grow while one would wait for its last addition.
//
//go:noescape
func dot4(dst *[4]float32, w, x *float32, n int)

// narrow4 is dot4 for n ≥ 4 elements, with the bits of dotLoop.
//
//go:noescape
func narrow4(dst *[4]float32, w, x *float32, n int)

// axpy4 is y += c0 x0, then y += c1 x1 and so on, of n ≥ 4 elements, in one pass over y.
//
//go:noescape
func axpy4(y *float32, n int, c0, c1, c2, c3 float32, x0, x1, x2, x3 *float32)

// useFourRowKernels takes what four rows at once are faster with.
func (k *vectorKernels[T]) useFourRowKernels() {
	if k, ok := any(k).(*vectorKernels[float32]); ok {
		k.dotFourRows = func(dst *[4]float32, w, x []float32) { dot4(dst, &w[:4*len(x)][0], &x[0], len(x)) }
		k.dotFourNarrowRows = func(dst *[4]float32, w, x []float32) { narrow4(dst, &w[:4*len(x)][0], &x[0], len(x)) }
		k.axpyFourRows = func(y []float32, c [4]float32, x [4][]float32) {
			n := len(y)
			axpy4(&y[0], n, c[0], c[1], c[2], c[3], &x[0][:n][0], &x[1][:n][0], &x[2][:n][0], &x[3][:n][0])
		}
	}
}
