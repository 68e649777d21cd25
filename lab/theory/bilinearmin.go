package theory

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Minimum is J* and a point where J has it. Of all (w₁, W₂) with W₂ᵀw₁ = u the least (‖w₁‖² + ‖W₂‖²)/2 is ‖u‖, at
// w₁ = √‖u‖·e₁ and W₂ = e₁uᵀ/√‖u‖, so that J* = min over u of E ℓ + ρ‖u‖: a convex problem in as many unknowns as there
// are inputs, which damped Newton steps solve. If ½‖Σp_k m_k‖ ≤ ρ, the minimum is w = 0 and there is no strict saddle.
func (b Bilinear) Minimum() (risk float64, w []float64) {
	inputs := len(b.Means[0])
	w = make([]float64, b.Hidden*(inputs+1))
	start := b.margins(mat.NewVecDense(inputs, nil))
	slope := mat.Norm(start.grad, 2)
	if slope <= b.Ridge {
		return start.risk, w
	}
	// From 0 the risk falls along −∇ with slope ‖∇‖ − ρ: a small step leaves the kink of ‖u‖ for good, as Newton steps
	// that are taken only downhill never come back to it.
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
			break // at the minimum, as far as the quadrature's last digits tell
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

// folded is E ℓ + ρ‖u‖ with what E ℓ was computed from.
func (b Bilinear) folded(u *mat.VecDense) (margins, float64) {
	m := b.margins(u)
	return m, m.risk + b.Ridge*mat.Norm(u, 2)
}
