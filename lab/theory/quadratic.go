package theory

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Quadratics describes M clients with the risks F_i(x) = ½(x − c_i)ᵀA(x − c_i) and additive gradient noise N(0, (σ²/d)
// I). In each round, all clients take τ local steps of size η (Renard's notes, Algorithm 1). They share the positive
// definite Hessian A. Therefore the minimiser of the mean risk is x* = (1/M)Σc_i.
type Quadratics struct {
	Hessian  mat.Symmetric // common Hessian A; positive definite
	Centres  [][]float64   // minimiser c_i of each client's risk
	Start    []float64     // initial model x_0
	NoiseVar float64       // total variance σ² of the gradient noise (Renard's notes, assumption 6, eq. (2))
	StepSize float64       // step size η
	Steps    int           // number τ of local steps per round
	Rounds   int           // number T of rounds
}

// Smoothness returns the smoothness constant L, the largest eigenvalue of the Hessian A.
func (q Quadratics) Smoothness() float64 {
	values, _ := q.spectrum()
	return values[len(values)-1]
}

// Minimizer returns the minimiser x* of the mean risk, which is the mean of the centres.
func (q Quadratics) Minimizer() []float64 {
	x := make([]float64, len(q.Start))
	for _, c := range q.Centres {
		for j, v := range c {
			x[j] += v / float64(len(q.Centres))
		}
	}
	return x
}

// Heterogeneity returns the constant ζ = max_i sup_x ‖∇F_i(x) − ∇F(x)‖ of Renard's notes, assumption 7. Eq. (3) of the
// notes prints a sum instead of the supremum. Because all clients share the Hessian A, ζ equals max_i ‖A(c_i − x*)‖ for
// every x.
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

// Distance returns the distance D = ‖x_0 − x*‖ of the initial model from the minimiser.
func (q Quadratics) Distance() float64 {
	d := 0.0
	for j, v := range q.Minimizer() {
		d += (q.Start[j] - v) * (q.Start[j] - v)
	}
	return math.Sqrt(d)
}

// Bound returns the right side of inequality (4) in Theorem 2.1 of Renard's notes, which requires a step size η ≤
// 1/(4L):
//
//	D²/(2ητT) + ησ²/M + 4τη²Lσ² + 18τ²η²Lζ²
func (q Quadratics) Bound() float64 {
	eta, tau, l := q.StepSize, float64(q.Steps), q.Smoothness()
	d, zeta := q.Distance(), q.Heterogeneity()
	return d*d/(2*eta*tau*float64(q.Rounds)) + eta*q.NoiseVar/float64(len(q.Centres)) +
		4*tau*eta*eta*l*q.NoiseVar + 18*tau*tau*eta*eta*l*zeta*zeta
}

// Suboptimality returns the exact left side of inequality (4) of Renard's notes: E (1/τT) Σ_t Σ_{k=1…τ} F(x̄^(t,k)) −
// F(x*). The clients share the Hessian A. Therefore their mean model follows gradient descent on F with noise N(0,
// (σ²/dM) I), independently of the rounds. Along an eigenvector of A with eigenvalue λ, the error e after n steps has E
// e² = (1−ηλ)²ⁿ e_0² + η²(σ²/dM)·Σ_{j<n} (1−ηλ)²ʲ.
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

// spectrum returns the eigenvalues of A in ascending order, and the eigenvectors as columns.
func (q Quadratics) spectrum() ([]float64, *mat.Dense) {
	var eig mat.EigenSym
	if !eig.Factorize(q.Hessian, true) {
		panic("theory: cannot compute the eigenvalues of the Hessian")
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	return eig.Values(nil), &vectors
}
