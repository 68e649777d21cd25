package theory

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Minimum returns the minimum J* and parameters w that attain it. For a given u = W₂ᵀw₁ the penalty (‖w₁‖² + ‖W₂‖²)/2
// is at least ‖u‖. Equality holds for w₁ = √‖u‖·e₁ and W₂ = e₁uᵀ/√‖u‖.
//
// Therefore J* is the minimum of E ℓ + ρ‖u‖ over u. This convex problem is solved with damped Newton steps. If ½‖Σp_k
// m_k‖ ≤ ρ, the minimum is at w = 0.
func (b Bilinear) Minimum() (risk float64, w []float64) {
	inputs := len(b.Means[0])
	w = make([]float64, b.Hidden*(inputs+1))
	start := b.margins(mat.NewVecDense(inputs, nil))
	slope := mat.Norm(start.grad, 2)
	if slope <= b.Ridge {
		return start.risk, w
	}
	// At u = 0 the norm ‖u‖ is not differentiable, so start with a small step along the negative gradient. Newton steps
	// only decrease the risk and therefore never return to 0.
	u := mat.NewVecDense(inputs, nil)
	at, value := start, start.risk
	for step := 1.0; value >= start.risk; step /= 2 {
		u.ScaleVec(-step/slope, start.grad)
		at, value = b.folded(u)
	}
	for range 200 {
		norm := mat.Norm(u, 2)
		grad, hessian := mat.VecDenseCopyOf(at.grad), at.hessian
		grad.AddScaledVec(grad, b.Ridge/norm, u)
		hessian.SymRankOne(hessian, -b.Ridge/(norm*norm*norm), u)
		for i := range inputs {
			hessian.SetSym(i, i, hessian.At(i, i)+b.Ridge/norm)
		}
		var move mat.VecDense
		if err := move.SolveVec(hessian, grad); err != nil {
			move.CopyVec(grad)
		}
		if mat.Norm(grad, 2) < 1e-13 {
			break
		}
		next, atNext, valueNext := u, at, math.Inf(1)
		for scale := 1.0; valueNext > value && scale > 1e-12; scale /= 2 {
			next = mat.VecDenseCopyOf(u)
			next.AddScaledVec(next, -scale, &move)
			atNext, valueNext = b.folded(next)
		}
		if !(valueNext <= value) {
			break // The minimum is reached up to the accuracy of the quadrature.
		}
		u, at, value = next, atNext, valueNext
	}
	root := math.Sqrt(mat.Norm(u, 2))
	for j := range inputs {
		w[j] = u.AtVec(j) / root
	}
	w[b.Hidden*inputs] = root
	return value, w
}

// folded returns the expected loss with derivatives at u, and the value of the convex function E ℓ(u) + ρ‖u‖.
func (b Bilinear) folded(u *mat.VecDense) (margins, float64) {
	m := b.margins(u)
	return m, m.risk + b.Ridge*mat.Norm(u, 2)
}
