package theory

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Regression is the regression problem of the FedDec paper. The risk of agent i is F_i(z) = (1/M)‖X_i z − Y_i‖² with M
// rows, and f is the mean of all F_i.
type Regression struct {
	X []*mat.Dense // features X_i [M, d] of each agent
	Y [][]float64  // targets Y_i of each agent
}

// hessian returns the Hessian (2/M)X_iᵀX_i of the risk of agent i.
func (r Regression) hessian(i int) *mat.SymDense {
	rows, d := r.X[i].Dims()
	h := mat.NewSymDense(d, nil)
	h.SymOuterK(2/float64(rows), r.X[i].T())
	return h
}

// Constants holds the constants in Theorem 1 of the FedDec paper. The strong convexity μ_sc belongs to the mean risk f,
// because the risk F_i of an agent with fewer rows than columns is not strongly convex.
type Constants struct {
	StrongConvexity float64   // strong convexity μ_sc: smallest eigenvalue of the Hessian of f
	Smoothness      float64   // smoothness L_s: largest eigenvalue of the Hessians of all F_i
	Minimizer       []float64 // minimiser z* of the mean risk f
	Minimum         float64   // minimum f* = f(z*) of the mean risk
	Heterogeneity   float64   // heterogeneity Γ = (1/n)Σ(F_i(z*) − min F_i)
}

// Constants returns the constants of r. It returns an error if the mean risk has no unique minimiser.
func (r Regression) Constants() (Constants, error) {
	n, d := float64(len(r.X)), r.X[0].RawMatrix().Cols
	total := mat.NewSymDense(d, nil)
	var c Constants
	for i := range r.X {
		h := r.hessian(i)
		c.Smoothness = max(c.Smoothness, extremes(h)[1])
		total.AddSym(total, scaledSym(1/n, h))
	}
	c.StrongConvexity = extremes(total)[0]
	if !(c.StrongConvexity > 1e-12*c.Smoothness) {
		return c, fmt.Errorf("the Hessian of f has the eigenvalue %v, so the minimiser is not unique",
			c.StrongConvexity)
	}
	z, minimum := leastSquares(r.X, r.Y)
	c.Minimizer = z
	c.Minimum = minimum / n
	c.Heterogeneity = c.Minimum
	for i := range r.X {
		_, own := leastSquares(r.X[i:i+1], r.Y[i:i+1])
		c.Heterogeneity -= own / n
	}
	return c, nil
}

// Gamma returns the constant γ = max{8L_s/μ_sc − 1, H} of the step size schedule η_t = 2/(μ_sc(γ+t)), t = 1, 2, …
// (FedDec paper, Theorem 1).
func (c Constants) Gamma(serverEvery int) float64 {
	return max(8*c.Smoothness/c.StrongConvexity-1, float64(serverEvery))
}

// FedDec holds all parameters of Theorem 1 of the FedDec paper.
type FedDec struct {
	Constants
	Agents        int     // number n of agents
	Participants  int     // number K of participants, drawn with replacement
	ServerEvery   int     // number H of local steps between two server rounds
	Alpha         float64 // constant α of the mixing matrix
	GradientBound float64 // bound G of the stochastic gradients: E‖∇F_i(z, ξ)‖² ≤ G² for all models z that occur
	NoiseVar      float64 // mean gradient noise σ̄² = (1/n)Σσ_i²
	Start         float64 // distance ‖z¹ − z*‖ of the initial model from the minimiser
}

// Bound returns the right side of Theorem 1 for E f(z̄^t) − f*:
//
//	L_s/(γ+t)·(2B/μ_sc² + (γ+1)/2·‖z¹−z*‖²),  B = (4/K + 8)αHG² + 6L_sΓ + σ̄²/n
//
// It does not apply to FedAvg, for which α is infinite.
func (f FedDec) Bound(t int) float64 {
	gamma, mu := f.Gamma(f.ServerEvery), f.StrongConvexity
	b := (4/float64(f.Participants)+8)*f.Alpha*float64(f.ServerEvery)*f.GradientBound*f.GradientBound +
		6*f.Smoothness*f.Heterogeneity + f.NoiseVar/float64(f.Agents)
	return f.Smoothness / (gamma + float64(t)) * (2*b/(mu*mu) + (gamma+1)/2*f.Start*f.Start)
}

// leastSquares returns the minimum-norm minimiser of Σ_i (1/M_i)‖X_i z − Y_i‖², and the minimum. It uses the singular
// values of the stacked rows, not the normal equations, because Y spans twenty powers of two.
func leastSquares(x []*mat.Dense, y [][]float64) (z []float64, minimum float64) {
	d, rows := x[0].RawMatrix().Cols, 0
	for i := range x {
		rows += len(y[i])
	}
	a, b := mat.NewDense(rows, d, nil), mat.NewVecDense(rows, nil)
	at := 0
	for i := range x {
		scale := 1 / math.Sqrt(float64(len(y[i])))
		for row, v := range y[i] {
			for j := range d {
				a.Set(at, j, scale*x[i].At(row, j))
			}
			b.SetVec(at, scale*v)
			at++
		}
	}
	var svd mat.SVD
	if !svd.Factorize(a, mat.SVDThin) {
		panic("theory: cannot compute the singular values")
	}
	var solution mat.VecDense
	svd.SolveVecTo(&solution, b, svd.Rank(1e-13))
	var miss mat.VecDense
	miss.MulVec(a, &solution)
	miss.SubVec(&miss, b)
	norm := mat.Norm(&miss, 2)
	return solution.RawVector().Data, norm * norm
}

// extremes returns the smallest and the largest eigenvalue of a symmetric matrix.
func extremes(s *mat.SymDense) [2]float64 {
	var eig mat.EigenSym
	if !eig.Factorize(s, false) {
		panic("theory: cannot compute the eigenvalues")
	}
	v := eig.Values(nil)
	return [2]float64{v[0], v[len(v)-1]}
}
