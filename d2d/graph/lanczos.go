package graph

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// The bounds of the search for extreme eigenvalues of large graphs.
const (
	// Up to here all eigenvalues are computed, in O(n³); from here on only the ends, by Lanczos.
	maxDenseNodes        = 1000
	maxLanczosSteps      = 300 // each keeps a vector of n
	lanczosCheckInterval = 20  // steps between two looks at how far it is
	lanczosTolerance     = 1e-10
)

// extremeEigenvalues returns the smallest and the largest eigenvalue of a symmetric n×n matrix on the vectors that are
// orthogonal to 𝟙, which must be an eigenvector of it; mul stores its product with x in dst. It takes Lanczos steps,
// all orthogonalised again, from a start that is drawn from a seed of its own, until both ends are known to 1e-10 of
// the larger one, or for 300 steps: then what it returns lies within the true ends. n is at least 2. Cost: a product
// and O(n) a step and vector.
func extremeEigenvalues(n int, mul func(dst, x []float64)) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	var basis [][]float64
	var diagonal, beside []float64 // of the tridiagonal matrix of the Lanczos vectors
	norm := orthogonalize(v, nil)
	for len(basis) < min(maxLanczosSteps, n-1) {
		floats.Scale(1/norm, v)
		basis = append(basis, v)
		next := make([]float64, n)
		mul(next, v)
		diagonal = append(diagonal, floats.Dot(next, v))
		norm = orthogonalize(next, basis)
		exhausted := norm <= lanczosTolerance*math.Abs(diagonal[0])
		if exhausted || len(basis) == min(maxLanczosSteps, n-1) || len(basis)%lanczosCheckInterval == 0 {
			var far float64
			if low, high, far = ritzExtremes(diagonal, beside, norm); exhausted ||
				far <= lanczosTolerance*max(math.Abs(low), math.Abs(high)) {
				return low, high
			}
		}
		beside = append(beside, norm)
		v = next
	}
	return low, high
}

// orthogonalize takes off v its parts along 𝟙 and along the basis, and returns what is left of its norm. Once would
// leave rounding errors, from which Lanczos makes copies of eigenvalues.
func orthogonalize(v []float64, basis [][]float64) float64 {
	for range 2 {
		floats.AddConst(-floats.Sum(v)/float64(len(v)), v)
		for _, b := range basis {
			floats.AddScaled(v, -floats.Dot(v, b), b)
		}
	}
	return floats.Norm(v, 2)
}

// ritzExtremes returns the ends of the tridiagonal matrix's spectrum, and how far at most they are from eigenvalues of
// the matrix itself: the next element beside the diagonal times the last element of their eigenvectors.
func ritzExtremes(diagonal, beside []float64, norm float64) (low, high, far float64) {
	k := len(diagonal)
	t := mat.NewSymDense(k, nil)
	for i, d := range diagonal {
		t.SetSym(i, i, d)
		if i > 0 {
			t.SetSym(i-1, i, beside[i-1])
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(t, true) {
		panic("graph: the eigenvalues of a finite symmetric matrix were not found")
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	values := eigen.Values(nil)
	return values[0], values[k-1], norm * max(math.Abs(vectors.At(k-1, 0)), math.Abs(vectors.At(k-1, k-1)))
}

// laplacianProduct stores in dst Σ w_ij (x_i − x_j)(e_i − e_j).
func laplacianProduct(g *Graph, weights []float64) func(dst, x []float64) {
	return func(dst, x []float64) {
		clear(dst)
		for k, e := range g.edges {
			f := weights[k] * (x[e.I] - x[e.J])
			dst[e.I] += f
			dst[e.J] -= f
		}
	}
}
