package learner

import (
	"math"
	"slices"
	"testing"
)

// TestKernels compares each loop of vectorKernels with its definition, around the lengths at which the implementation
// changes. The loops for processors without assembly are portable, so the test runs both variants.
func TestKernels(t *testing.T) {
	for _, arch := range []string{"amd64", "arm"} {
		t.Run(arch, func(t *testing.T) {
			testKernel(t, newVectorKernels[float32](arch), 1e-5)
			testKernel(t, newVectorKernels[float64](arch), 1e-13)
			type own float32 // A named type uses the portable loops instead of assembly.
			testKernel(t, newVectorKernels[own](arch), 1e-5)
		})
	}
}

func testKernel[T Float](t *testing.T, k vectorKernels[T], tolerance float64) {
	t.Helper()
	rng := newRNG(7)
	const rows, stride = 3, 2
	for _, n := range []int{1, 2, 3, 4, 5, 8, minAssemblyLength - 1, minAssemblyLength, minAssemblyLength + 1, 67} {
		x, w, a := randomVector[T](rows*n, 1, rng), randomVector[T](n, 1, rng), randomVector[T](rows*stride, 1, rng)
		dots, wantDots := make([]T, rows*stride), make([]T, rows*stride)
		y, sum := append([]T(nil), w...), T(0)
		wantY := append([]T(nil), w...)
		wantSquares := 0.0
		for s := range rows {
			wantDots[s*stride] = 0.25
			sum += 0.5 * a[s*stride]
			for i := range n {
				wantDots[s*stride] += w[i] * x[s*n+i]
				wantY[i] += 0.5 * a[s*stride] * x[s*n+i]
			}
		}
		for _, v := range w {
			wantSquares += float64(v) * float64(v)
		}
		k.dotEachRow(dots, stride, 0.25, w, x)
		compare(t, "dots", dots, wantDots, tolerance)
		got := k.addNonzeroRows(y, 0.5, a, stride, x)
		compare(t, "combine", y, wantY, tolerance)
		compare(t, "sum and squares", []float64{float64(got), k.squaredNorm(w)}, []float64{float64(sum), wantSquares},
			tolerance)
		k.axpy(-0.5, y, y)
		for i := range wantY {
			wantY[i] /= 2
		}
		compare(t, "axpy onto itself", y, wantY, tolerance)
	}
}

// TestFourRows checks that the loops for four rows give bitwise the same results as the loops for one row, at all
// memory alignments.
func TestFourRows(t *testing.T) {
	k, rng := newLoopKernels[float32](), newRNG(9)
	if k.dotFourRows == nil || k.axpyFourRows == nil {
		t.Skip("this processor has no assembly for it")
	}
	same := func(what string, n int, got, want []float32) {
		t.Helper()
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%s, %d elements: element %d is %v, want %v", what, n, i, got[i], want[i])
			}
		}
	}
	for n := 1; n < minAssemblyLength+70; n++ {
		for shift := range 4 {
			const rows, out, stride = 6, 11, 2
			vector := func(n int) []float32 { return randomVector[float32](n+shift, 1, rng)[shift:] }
			x, w, bias, a := vector(rows*n), vector(out*n), vector(out), vector(rows*stride)
			for _, b := range [][]float32{nil, bias} {
				got, want := make([]float32, rows*out), make([]float32, rows*out)
				k.forwardLayer(got, w, b, x, n, out)
				for o := range out {
					add := float32(0)
					if b != nil {
						add = b[o]
					}
					k.dotEachRow(want[o:], out, add, w[o*n:][:n], x)
				}
				same("layer", n, got, want)
			}
			a[2*stride] = 0
			got := append(vector(n), 7, 7)
			want := slices.Clone(got)
			sum, wantSum := k.addNonzeroRows(got[:n], 0.3, a, stride, x), k.addScaledRows(want[:n], 0.3, a, stride, x)
			same("combine", n, append(got, sum), append(want, wantSum))
		}
	}
}

// TestFourRowsOfNaN checks that a NaN in one of four rows affects only the result of that row.
func TestFourRowsOfNaN(t *testing.T) {
	k := newLoopKernels[float32]()
	for _, n := range []int{7, 40} {
		w, got := make([]float32, 4*n), make([]float32, 4)
		w[n+1] = float32(math.NaN())
		k.forwardLayer(got, w, nil, make([]float32, n), n, 4)
		if got[0] != 0 || got[1] == got[1] || got[2] != 0 || got[3] != 0 {
			t.Errorf("%d elements, with a NaN in row 1 of 4: %v", n, got)
		}
	}
}

// TestNarrowLayer checks that for a layer with one input the result is bitwise equal to a product plus a sum, for all
// variants of the loops and for non-finite values.
func TestNarrowLayer(t *testing.T) {
	minusZero, inf := float32(math.Copysign(0, -1)), float32(math.Inf(1))
	w := append([]float32{0, minusZero, 1, -1, inf, -inf, float32(math.NaN())},
		randomVector[float32](40, 1, newRNG(3))...)
	bias := append([]float32{minusZero, minusZero, inf}, randomVector[float32](len(w)-3, 1, newRNG(4))...)
	x := []float32{0, minusZero, 0.3, -2, inf, -inf, float32(math.NaN())}
	for _, arch := range []string{"amd64", "arm"} {
		k := newVectorKernels[float32](arch)
		for _, b := range [][]float32{nil, bias} {
			// Fill got with other values, to check that every element is overwritten.
			got := slices.Repeat([]float32{7}, len(x)*len(w))
			k.forwardLayer(got, w, b, x, 1, len(w))
			for i := range got {
				want := float32(x[i/len(w)]*w[i%len(w)]) + 0
				if b != nil {
					want += b[i%len(w)]
				}
				if math.Float32bits(got[i]) != math.Float32bits(want) && (got[i] == got[i] || want == want) {
					t.Errorf("%s: %v·%v with biases %v is %v, want %v", arch, x[i/len(w)], w[i%len(w)], b != nil,
						got[i], want)
				}
			}
		}
	}
}

func TestPortableKernelTrains(t *testing.T) {
	for _, a := range wideArchitectures() {
		rng := newRNG(8)
		m, portable := newModel[float64](t, a), newModel[float64](t, a)
		portable.kernels = newVectorKernels[float64]("arm64")
		switch o := portable.objective.(type) {
		case *linearModel[float64]:
			o.kernels = portable.kernels
		case *network[float64]:
			o.kernels = portable.kernels
		}
		batch := randomSamples[float64](a, 40, rng).All()
		w := randomVector[float64](a.ParameterCount(), 0.3, rng)
		got, want := make([]float64, len(w)), make([]float64, len(w))
		portable.Gradient(got, w, batch)
		m.Gradient(want, w, batch)
		compare(t, describe(a), got, want, 1e-12)
	}
}
