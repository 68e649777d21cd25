package theory

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
)

// Bilinear is the aggregate risk of eq. (41) in the paper on second-order guarantees. The inputs of agent k are a
// Gaussian mixture h = γ m_k + N(0, σ² I) with γ = ±1:
//
//	J(w₁, W₂) = Σ p_k E ln(1 + exp(−γ w₁ᵀW₂h)) + (ρ/2)(‖w₁‖² + ‖W₂‖²)
//
// With u = W₂ᵀw₁ the margin γuᵀh is N(uᵀm_k, σ²‖u‖²) for both values of γ. One Gauss–Hermite quadrature per agent
// therefore gives J and its derivatives. A point w is the learner's parameter vector: W₂ row by row [hidden, inputs],
// then w₁ [hidden].
type Bilinear struct {
	Hidden   int
	Means    [][]float64 // mean m_k of the features for each agent
	Variance float64     // variance σ² of each feature
	Ridge    float64     // ridge penalty ρ
	Weights  []float64   // agents' weights p_k; nil means equal weights
}

// nodes is the number of quadrature points. The logistic function has poles at ±πi, so that the error of J grows with
// the standard deviation s of the margin: 10⁻¹³ at s = 2, 10⁻⁹ at 4, 10⁻⁵ at 6.
const nodes = 96

var hermiteAt, hermiteWeight = hermite()

// hermite returns points and weights of a quadrature for E f(z), z ~ N(0, 1).
func hermite() (at, weight [nodes]float64) {
	quad.Hermite{}.FixedLocations(at[:], weight[:], math.Inf(-1), math.Inf(1))
	for i, x := range at {
		at[i], weight[i] = x*math.Sqrt2, weight[i]/math.SqrtPi
	}
	return at, weight
}

// margins holds the expected risk at a vector u of linear weights, averaged over the agents, and the first and second
// derivatives with respect to u.
type margins struct {
	risk    float64
	grad    *mat.VecDense
	hessian *mat.SymDense
}

// margins computes the expectations at u. It uses Stein's identity, E z f(m + sz) = s E f′, which avoids a division by
// s = 0:
//
//	∂/∂u   E ℓ = E[ℓ′] m + σ² E[ℓ″] u
//	∂²/∂u² E ℓ = E[ℓ″] mmᵀ + σ² E[ℓ″] I + σ² E[ℓ‴](muᵀ + umᵀ) + σ⁴ E[ℓ⁗] uuᵀ
func (b Bilinear) margins(u *mat.VecDense) margins {
	n := u.Len()
	out := margins{grad: mat.NewVecDense(n, nil), hessian: mat.NewSymDense(n, nil)}
	spread := math.Sqrt(b.Variance) * mat.Norm(u, 2)
	for k, mean := range b.Means {
		m := mat.NewVecDense(n, mean)
		e := logisticMoments(mat.Dot(u, m), spread)
		p := 1 / float64(len(b.Means))
		if b.Weights != nil {
			p = b.Weights[k]
		}
		out.risk += p * e[0]
		out.grad.AddScaledVec(out.grad, p*e[1], m)
		out.grad.AddScaledVec(out.grad, p*b.Variance*e[2], u)
		out.hessian.SymRankOne(out.hessian, p*e[2], m)
		for i := range n {
			out.hessian.SetSym(i, i, out.hessian.At(i, i)+p*b.Variance*e[2])
		}
		out.hessian.RankTwo(out.hessian, p*b.Variance*e[3], m, u)
		out.hessian.SymRankOne(out.hessian, p*b.Variance*b.Variance*e[4], u)
	}
	return out
}

// logisticMoments returns the expected value of the logistic loss ln(1 + exp(−t)) and of the first four derivatives,
// for a margin t ~ N(mean, spread²).
func logisticMoments(mean, spread float64) (e [5]float64) {
	for i, z := range hermiteAt {
		t := mean + spread*z
		away := math.Exp(-math.Abs(t))
		// s is the sigmoid function at −t, the negative derivative of the loss.
		s, loss := away/(1+away), math.Log(1+away)
		if t < 0 {
			s, loss = 1-s, loss-t
		}
		v := s * (1 - s)
		l := [5]float64{loss, -s, v, v * (2*s - 1), v * (1 - 6*v)}
		for j := range e {
			e[j] += hermiteWeight[i] * l[j]
		}
	}
	return e
}

// Risk returns the aggregate risk J(w).
func (b Bilinear) Risk(w []float64) float64 {
	w2, w1 := b.split(w)
	norm := mat.Norm(mat.NewVecDense(len(w), w), 2)
	return b.margins(fold(w2, w1)).risk + b.Ridge/2*norm*norm
}

// Gradient returns the gradient ∇J(w). The term of the ridge is +ρw. The paper on second-order guarantees prints this
// term with the wrong sign in eq. (42).
func (b Bilinear) Gradient(w []float64) []float64 {
	w2, w1 := b.split(w)
	g := b.margins(fold(w2, w1)).grad
	grad := make([]float64, len(w))
	inputs := len(b.Means[0])
	for i := range b.Hidden {
		for j := range inputs {
			grad[i*inputs+j] = w1.AtVec(i) * g.AtVec(j)
			grad[b.Hidden*inputs+i] += w2.At(i, j) * g.AtVec(j)
		}
	}
	for i, v := range w {
		grad[i] += b.Ridge * v
	}
	return grad
}

// Hessian returns ∇²J(w) = UᵀHU + (the derivative of U) + ρI. U is the Jacobian of u = W₂ᵀw₁, and H is the Hessian with
// respect to u.
func (b Bilinear) Hessian(w []float64) *mat.SymDense {
	w2, w1 := b.split(w)
	m := b.margins(fold(w2, w1))
	inputs := len(b.Means[0])
	jacobian := b.jacobian(w2, w1)
	full := product(product(jacobian.T(), m.hessian), jacobian)
	h := symmetric(full)
	for i := range b.Hidden {
		for j := range inputs {
			at, to := i*inputs+j, b.Hidden*inputs+i
			h.SetSym(at, to, h.At(at, to)+m.grad.AtVec(j))
		}
	}
	for i := range w {
		h.SetSym(i, i, h.At(i, i)+b.Ridge)
	}
	return h
}

// jacobian returns the Jacobian U = ∂u/∂w of u = W₂ᵀw₁, with shape [inputs, d].
func (b Bilinear) jacobian(w2 *mat.Dense, w1 *mat.VecDense) *mat.Dense {
	inputs := len(b.Means[0])
	u := mat.NewDense(inputs, b.Hidden*(inputs+1), nil)
	for i := range b.Hidden {
		for j := range inputs {
			u.Set(j, i*inputs+j, w1.AtVec(i))
			u.Set(j, b.Hidden*inputs+i, w2.At(i, j))
		}
	}
	return u
}

// SmallestEigenvalue returns the smallest eigenvalue of ∇²J(w). At w = 0 it is ρ − ½‖Σp_k m_k‖, which is negative if 0
// is a strict saddle.
func (b Bilinear) SmallestEigenvalue(w []float64) float64 {
	var eig mat.EigenSym
	if !eig.Factorize(b.Hessian(w), false) {
		panic("theory: cannot compute the eigenvalues of the Hessian")
	}
	return eig.Values(nil)[0]
}

// split returns views of the matrix W₂ and the vector w₁ in the parameter vector w.
func (b Bilinear) split(w []float64) (w2 *mat.Dense, w1 *mat.VecDense) {
	inputs := len(b.Means[0])
	if len(w) != b.Hidden*(inputs+1) {
		panic(fmt.Sprintf("theory: the point has %d numbers, which does not match a %d-%d-1 network", len(w), inputs,
			b.Hidden))
	}
	return mat.NewDense(b.Hidden, inputs, w[:b.Hidden*inputs]), mat.NewVecDense(b.Hidden, w[b.Hidden*inputs:])
}

// fold returns the linear weights u = W₂ᵀw₁ of the network.
func fold(w2 *mat.Dense, w1 *mat.VecDense) *mat.VecDense {
	var u mat.VecDense
	u.MulVec(w2.T(), w1)
	return &u
}
