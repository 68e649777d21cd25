package graph

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Parameters of the search for extreme eigenvalues of large graphs.
const (
	// maxDenseNodes is the maximum number of nodes for which all eigenvalues are computed, in O(n³) for n nodes. For
	// larger graphs, the Lanczos algorithm computes only the smallest and the largest eigenvalue.
	maxDenseNodes        = 1000
	maxLanczosSteps      = 300 // maximum number of Lanczos steps; each step stores a vector of n elements
	lanczosCheckInterval = 20  // number of steps between two checks of convergence
	lanczosTolerance     = 1e-10
)

// extremeEigenvalues returns the smallest and the largest eigenvalue of a symmetric n×n matrix, n ≥ 2, whose
// eigenvectors are orthogonal to the all-ones vector 𝟙. The vector 𝟙 must also be an eigenvector of the matrix. The
// function mul stores the product of the matrix and x in dst.
//
// extremeEigenvalues performs Lanczos steps with full reorthogonalisation from a random start vector with a fixed seed.
// It stops when both eigenvalues are known to 1e-10 relative to the larger one, or after 300 steps. After 300 steps,
// the results lie between the true smallest and largest eigenvalue. A step costs one product, and O(n) per stored
// vector.
func extremeEigenvalues(n int, mul func(dst, x []float64)) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	var basis [][]float64
	var diagonal, beside []float64 // diagonal and off-diagonal elements of the tridiagonal Lanczos matrix
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

// orthogonalize removes from v the components along the all-ones vector 𝟙 and along the basis vectors, and returns the
// norm of the rest. It makes two passes, because rounding errors of a single pass would create spurious copies of
// eigenvalues.
func orthogonalize(v []float64, basis [][]float64) float64 {
	for range 2 {
		floats.AddConst(-floats.Sum(v)/float64(len(v)), v)
		for _, b := range basis {
			floats.AddScaled(v, -floats.Dot(v, b), b)
		}
	}
	return floats.Norm(v, 2)
}

// ritzExtremes returns the smallest and the largest eigenvalue of the tridiagonal Lanczos matrix, and a bound on their
// distance from eigenvalues of the original matrix. The bound is the next off-diagonal element times the last element
// of the eigenvectors.
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
		panic("graph: eigenvalue computation failed for a finite symmetric matrix")
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	values := eigen.Values(nil)
	return values[0], values[k-1], norm * max(math.Abs(vectors.At(k-1, 0)), math.Abs(vectors.At(k-1, k-1)))
}

// laplacianProduct returns a function that multiplies the weighted Laplacian of the graph by x: it stores Σ w_ij (x_i −
// x_j)(e_i − e_j), summed over the edges ij, in dst.
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
