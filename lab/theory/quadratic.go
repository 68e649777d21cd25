package theory

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Quadratics is the clients F_i(x) = ½(x − c_i)ᵀA(x − c_i) with one A, gradients with additive noise N(0, (σ²/d) I), τ
// local steps of size η at each of M clients a round, all taking part (notes Alg. 1). A is positive definite, so that
// x* = (1/M)Σc_i.
type Quadratics struct {
	Hessian  mat.Symmetric // A
	Centres  [][]float64   // c_i
	Start    []float64     // x_0
	NoiseVar float64       // σ², of the whole vector, as assumption 6 (2) has it
	StepSize float64       // η
	Steps    int           // τ
	Rounds   int           // T
}

// Smoothness is L = λ_max(A).
func (q Quadratics) Smoothness() float64 {
	values, _ := q.spectrum()
	return values[len(values)-1]
}

// Minimizer is x*.
func (q Quadratics) Minimizer() []float64 {
	x := make([]float64, len(q.Start))
	for _, c := range q.Centres {
		for j, v := range c {
			x[j] += v / float64(len(q.Centres))
		}
	}
	return x
}

// Heterogeneity is ζ = max_i sup_x ‖∇F_i(x) − ∇F(x)‖ (assumption 7; (3) prints a sum where the supremum belongs):
// max_i ‖A(c_i − x*)‖, the same at every x because the clients share A.
func (q Quadratics) Heterogeneity() float64 {
	zeta, star := 0.0, mat.NewVecDense(len(q.Start), q.Minimizer())
	for _, c := range q.Centres {
		var t, g mat.VecDense
		t.SubVec(mat.NewVecDense(len(c), c), star)
		g.MulVec(q.Hessian, &t)
		zeta = max(zeta, mat.Norm(&g, 2))
	}
	return zeta
}

// Distance is D = ‖x_0 − x*‖.
func (q Quadratics) Distance() float64 {
	d := 0.0
	for j, v := range q.Minimizer() {
		d += (q.Start[j] - v) * (q.Start[j] - v)
	}
	return math.Sqrt(d)
}

// Bound is the right side of notes Theorem 2.1 (4), which needs η ≤ 1/(4L):
//
//	D²/(2ητT) + ησ²/M + 4τη²Lσ² + 18τ²η²Lζ²
func (q Quadratics) Bound() float64 {
	eta, tau, l := q.StepSize, float64(q.Steps), q.Smoothness()
	d, zeta := q.Distance(), q.Heterogeneity()
	return d*d/(2*eta*tau*float64(q.Rounds)) + eta*q.NoiseVar/float64(len(q.Centres)) +
		4*tau*eta*eta*l*q.NoiseVar + 18*tau*tau*eta*eta*l*zeta*zeta
}

// Suboptimality is the left side of (4), exactly: E (1/τT) Σ_t Σ_{k=1…τ} F(x̄^(t,k)) − F(x*). The clients share A, so
// their mean, the shadow sequence, is gradient descent on F with noise N(0, (σ²/dM) I), whatever the rounds; along an
// eigenvector of A with eigenvalue λ its error has E e² = (1−ηλ)²ⁿ e_0² + η²(σ²/dM)·Σ_{j<n} (1−ηλ)²ʲ after n steps.
func (q Quadratics) Suboptimality() float64 {
	values, vectors := q.spectrum()
	star := q.Minimizer()
	perCoordinate := q.NoiseVar / float64(len(star)*len(q.Centres))
	steps := q.Steps * q.Rounds
	total := 0.0
	for j, lambda := range values {
		e := 0.0
		for i, v := range star {
			e += vectors.At(i, j) * (q.Start[i] - v)
		}
		square, keep := e*e, (1-q.StepSize*lambda)*(1-q.StepSize*lambda)
		for range steps {
			square = keep*square + q.StepSize*q.StepSize*perCoordinate
			total += lambda * square / 2
		}
	}
	return total / float64(steps)
}

// spectrum is the eigenvalues of A, ascending, and the eigenvectors as columns.
func (q Quadratics) spectrum() ([]float64, *mat.Dense) {
	var eig mat.EigenSym
	if !eig.Factorize(q.Hessian, true) {
		panic("theory: the eigenvalues of the Hessian were not found")
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	return eig.Values(nil), &vectors
}
