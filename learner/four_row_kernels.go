//go:build amd64 || arm64

package learner

// dot4 computes the dot products of x with four consecutive rows of w, of n ≥ 32 elements each, and writes them to dst.
// The result is bitwise identical to that of four separate dot products. Four independent sums are faster, since they
// need not wait for each other.
//
//go:noescape
func dot4(dst *[4]float32, w, x *float32, n int)

// narrow4 computes the same as dot4 for n ≥ 4 elements. The result is bitwise identical to that of dotLoop.
//
//go:noescape
func narrow4(dst *[4]float32, w, x *float32, n int)

// axpy4 computes y += c0·x0, then y += c1·x1, y += c2·x2 and y += c3·x3, for n ≥ 4 elements, in one pass over y.
//
//go:noescape
func axpy4(y *float32, n int, c0, c1, c2, c3 float32, x0, x1, x2, x3 *float32)

// useFourRowKernels installs the kernels that process four rows at once.
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
