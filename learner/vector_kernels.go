package learner

import (
	"runtime"

	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// vectorKernels contains the innermost loops for one element type. The loops are selected once per model, since a
// selection at each call would take as long as a short loop.
type vectorKernels[T Float] struct {
	// dotEachRow sets dst[s·stride] = bias + wᵀx_s for each row x_s of the matrix x.
	dotEachRow func(dst []T, stride int, bias T, w, x []T)
	// addScaledRows adds all rows x_s of the matrix x, each multiplied by the factor c_s = scale·a[s·stride], to y. It
	// returns the sum of the factors c_s.
	addScaledRows func(y []T, scale T, a []T, stride int, x []T) (sum T)
	axpy          func(alpha T, x, y []T)    // adds alpha·x to y; y may be x
	squaredNorm   func(x []T) (norm float64) // squared norm ‖x‖², accumulated in float64

	// Loops for four rows of at least minAssemblyLength elements. Their results are bitwise identical to the results of
	// the loops above. They are nil without assembly.
	dotFourRows       func(dst *[4]T, w, x []T)     // sets dst to the dot products of x with four rows of w
	dotFourNarrowRows func(dst *[4]T, w, x []T)     // same as dotFourRows for short rows of at least 4 elements
	axpyFourRows      func(y []T, c [4]T, x [4][]T) // adds c_0·x_0, c_1·x_1, c_2·x_2 and c_3·x_3 to y
}

// forwardLayer computes the sums bias_o + w_oᵀx_s of a layer for each row x_s of x and each unit o, and writes them to
// dst, in the shape [rows,out]. The parameter bias may be nil.
func (k *vectorKernels[T]) forwardLayer(dst, w, bias, x []T, in, out int) {
	if in < minAssemblyLength {
		k.forwardNarrowLayer(dst, w, bias, x, in, out)
		return
	}
	o := 0
	for k.dotFourRows != nil && o+4 <= out {
		for at, row := o, x; len(row) >= in; at, row = at+out, row[in:] {
			z := (*[4]T)(dst[at:])
			k.dotFourRows(z, w[o*in:], row[:in])
			for i := range z {
				if bias != nil {
					z[i] += bias[o+i]
				}
			}
		}
		o += 4
	}
	for ; o < out; o++ {
		var b T
		if bias != nil {
			b = bias[o]
		}
		k.dotEachRow(dst[o:], out, b, w[o*in:][:in], x)
	}
}

// forwardNarrowLayer implements forwardLayer for layers with few inputs. It fills dst sequentially, since the rows of a
// wide layer are too far apart to share cache lines.
func (k *vectorKernels[T]) forwardNarrowLayer(dst, w, bias, x []T, in, out int) {
	for ; len(x) >= in && len(dst) >= out; dst, x = dst[out:], x[in:] {
		z, o := dst[:out], 0
		// The element x[0] must not be 0, since gonum computes 0·w as 0 even if w is not finite.
		if in == 1 && x[0] != 0 {
			clear(z)
			k.axpy(x[0], w[:out], z)
			o = out
		}
		for in >= 4 && k.dotFourNarrowRows != nil && o+4 <= out {
			k.dotFourNarrowRows((*[4]T)(z[o:]), w[o*in:], x[:in])
			o += 4
		}
		for ; o < out; o++ {
			z[o] = dotLoop(w[o*in:][:in], x[:in])
		}
		if bias != nil {
			k.axpy(1, bias, z)
		}
	}
}

// addNonzeroRows implements addScaledRows. It processes groups of four rows whose factors c_s are not 0. For a relu
// layer, about half of the factors are 0.
func (k *vectorKernels[T]) addNonzeroRows(y []T, scale T, a []T, stride int, x []T) (sum T) {
	n := len(y)
	if k.axpyFourRows == nil || n < minAssemblyLength || len(x) < 4*n {
		return k.addScaledRows(y, scale, a, stride, x)
	}
	var c [4]T
	var four [4][]T
	held := 0
	for at := 0; len(x) >= n; at += stride {
		if c[held], four[held] = T(scale*a[at]), x[:n]; c[held] != 0 {
			sum += c[held]
			held++
		}
		if held == len(c) {
			k.axpyFourRows(y, c, four)
			held = 0
		}
		x = x[n:]
	}
	for i := range held {
		k.axpy(c[i], four[i], y)
	}
	return sum
}

// minAssemblyLength is the minimum number of elements for which a call of gonum's assembly is faster than a loop in Go.
const minAssemblyLength = 32

// newVectorKernels returns gonum's kernels if gonum has assembly for the architecture, and otherwise unrolled loops,
// which are faster than gonum's plain loops.
func newVectorKernels[T Float](arch string) vectorKernels[T] {
	k := vectorKernels[T]{dotEachRow: dotEachRowLoop[T], addScaledRows: addScaledRowsLoop[T], axpy: axpyLoop[T],
		squaredNorm: squaredNormLoop[T]}
	if arch == "amd64" {
		k.useGonumAssembly()
	}
	if arch == runtime.GOARCH {
		k.useFourRowKernels()
	}
	return k
}

// useGonumAssembly installs the assembly loops of gonum for the element type.
func (k *vectorKernels[T]) useGonumAssembly() {
	switch k := any(k).(type) {
	case *vectorKernels[float32]:
		impl := blas32.Implementation()
		*k = newGonumKernels(impl.Sdot, impl.Saxpy)
		k.squaredNorm = func(x []float32) float64 { return impl.Dsdot(len(x), x, 1, x, 1) }
	case *vectorKernels[float64]:
		impl := blas64.Implementation()
		*k = newGonumKernels(impl.Ddot, impl.Daxpy)
		k.squaredNorm = func(x []float64) float64 { return impl.Ddot(len(x), x, 1, x, 1) }
	}
}

func newLoopKernels[T Float]() vectorKernels[T] { return newVectorKernels[T](runtime.GOARCH) }

// newGonumKernels returns kernels from gonum's dot and axpy, except squaredNorm.
func newGonumKernels[T Float](dot func(n int, x []T, incX int, y []T, incY int) T,
	axpy func(n int, alpha T, x []T, incX int, y []T, incY int)) vectorKernels[T] {
	return vectorKernels[T]{
		dotEachRow: func(dst []T, stride int, bias T, w, x []T) {
			n := len(w)
			if n < minAssemblyLength {
				dotEachRowLoop(dst, stride, bias, w, x)
				return
			}
			for at := 0; len(x) >= n; at += stride {
				dst[at] = bias + dot(n, w, 1, x, 1)
				x = x[n:]
			}
		},
		addScaledRows: func(y []T, scale T, a []T, stride int, x []T) (sum T) {
			n := len(y)
			if n < minAssemblyLength {
				return addScaledRowsLoop(y, scale, a, stride, x)
			}
			for at := 0; len(x) >= n; at += stride {
				c := T(scale * a[at])
				axpy(n, c, x, 1, y, 1)
				sum += c
				x = x[n:]
			}
			return sum
		},
		axpy: func(alpha T, x, y []T) { axpy(len(x), alpha, x, 1, y, 1) },
	}
}

// The conversions T(a*b) below round each product, so that compilers cannot fuse it with the addition.

func dotEachRowLoop[T Float](dst []T, stride int, bias T, w, x []T) {
	for at := 0; len(x) >= len(w); at += stride {
		dst[at] = bias + dotLoop(w, x)
		x = x[len(w):]
	}
}

func addScaledRowsLoop[T Float](y []T, scale T, a []T, stride int, x []T) (sum T) {
	for at := 0; len(x) >= len(y); at += stride {
		c := T(scale * a[at])
		axpyLoop(c, x[:len(y)], y)
		sum += c
		x = x[len(y):]
	}
	return sum
}

func dotLoop[T Float](x, y []T) T {
	y = y[:len(x)]
	var a, b, c, d T
	i := len(x) & 3
	switch i { // Add the remaining elements first, so that these additions need not wait for the others.
	case 3:
		c = T(x[2] * y[2])
		fallthrough
	case 2:
		b = T(x[1] * y[1])
		fallthrough
	case 1:
		a = T(x[0] * y[0])
	}
	for ; i+4 <= len(x); i += 4 {
		a += T(x[i] * y[i])
		b += T(x[i+1] * y[i+1])
		c += T(x[i+2] * y[i+2])
		d += T(x[i+3] * y[i+3])
	}
	return (a + b) + (c + d)
}

func axpyLoop[T Float](alpha T, x, y []T) {
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		y[i] += T(alpha * x[i])
		y[i+1] += T(alpha * x[i+1])
		y[i+2] += T(alpha * x[i+2])
		y[i+3] += T(alpha * x[i+3])
	}
	for ; i < len(x); i++ {
		y[i] += T(alpha * x[i])
	}
}

func squaredNormLoop[T Float](x []T) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	return sum
}
