package data

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// quadratic is the function J(w) = J* + ½(w − w⁰)ᵀA(w − w⁰) with minimum J*, minimiser w⁰ and a diagonal or full matrix
// A.
type quadratic struct {
	diagonal  []float64     // diagonal of A; nil if A is not diagonal
	full      *mat.SymDense // matrix A; nil if A is diagonal
	minimizer []float64
	minimum   float64
}

// times computes the product A(w − w⁰). For each element j of the product, it calls take with j, the element, and
// element j of w − w⁰.
func (q *quadratic) times(w []float64, take func(j int, slope, away float64)) {
	n := len(q.minimizer)
	for j := range n {
		away := w[j] - q.minimizer[j]
		if q.diagonal != nil {
			take(j, q.diagonal[j]*away, away)
			continue
		}
		slope, row := 0.0, q.full.RawSymmetric()
		for i := range n {
			// The matrix stores only its upper triangle.
			slope += row.Data[min(i, j)*row.Stride+max(i, j)] * (w[i] - q.minimizer[i])
		}
		take(j, slope, away)
	}
}

func (q *quadratic) excess(w []float64) float64 {
	sum := 0.0
	q.times(w, func(_ int, slope, away float64) { sum += slope * away / 2 })
	return sum
}

func (q *quadratic) gradient(dst, w []float64) {
	q.times(w, func(j int, slope, _ float64) { dst[j] = slope })
}

// hessian returns the matrix A in row-major order.
func (q *quadratic) hessian() []float64 {
	n := len(q.minimizer)
	a := make([]float64, n*n)
	for i := range n {
		if q.diagonal != nil {
			a[i*n+i] = q.diagonal[i]
			continue
		}
		for j := range n {
			a[i*n+j] = q.full.At(i, j)
		}
	}
	return a
}

// objective returns J as an Objective, with the constants that follow from the eigenvalues of A.
func (q *quadratic) objective() Objective {
	o := Objective{
		Risk:   func(w []float64) float64 { return q.minimum + q.excess(w) },
		Excess: q.excess, Gradient: q.gradient, Hessian: q.hessian, Minimizer: q.minimizer, Minimum: q.minimum,
	}
	values := q.diagonal
	if q.full != nil {
		values = eigenvalues(q.full)
	}
	o.StrongConvexity, o.Steepest = slices.Min(values), slices.Max(values)
	if o.StrongConvexity < 1e-12*o.Steepest { // the eigenvalue is zero up to rounding, so J is flat in some directions
		o.StrongConvexity = 0
	}
	return o
}

// eigenvalues returns the eigenvalues of a symmetric matrix, smallest first.
func eigenvalues(a *mat.SymDense) []float64 {
	var eig mat.EigenSym
	if !eig.Factorize(a, false) {
		panic(fmt.Sprintf("data: cannot compute the eigenvalues of a matrix of size %d", a.SymmetricDim()))
	}
	return eig.Values(nil)
}
