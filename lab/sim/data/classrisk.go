package data

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
)

// aggregateClasses computes the aggregate risk J of Classes. The risk depends on the linear weights u, which are w
// itself for logistic regression and W₂ᵀw₁ for the bilinear network. For both classes γ, the margin γuᵀh has the
// distribution N(uᵀm_k, σ²‖u‖²). Therefore one numerical integration per agent gives the expected loss.
type aggregateClasses struct {
	Classes
	share func(k int) float64 // normalised weight p_k of agent k
}

// quadraturePoints is the number of integration points. It gives an error below 1e-10 while the standard deviation of
// the margin is below 2.
const quadraturePoints = 96

// hermite returns points and weights that approximate the expectation E f(z) for z ~ N(0, 1) by Gauss–Hermite
// quadrature.
func hermite() (at, weight []float64) {
	at, weight = make([]float64, quadraturePoints), make([]float64, quadraturePoints)
	quad.Hermite{}.FixedLocations(at, weight, math.Inf(-1), math.Inf(1))
	for i, x := range at {
		at[i], weight[i] = x*math.Sqrt2, weight[i]/math.SqrtPi
	}
	return at, weight
}

// margin returns the expected loss E ln(1 + exp(−t)) over the margin t for the linear weights u. If grad is not nil,
// margin stores the gradient with respect to u in grad.
func (a *aggregateClasses) margin(grad, u, at, weight []float64) float64 {
	norm := 0.0
	for _, v := range u {
		norm += v * v
	}
	deviation, total := math.Sqrt(a.Variance*norm), 0.0
	clear(grad)
	for k, m := range a.Means {
		centre := 0.0
		for j, v := range u {
			centre += v * m[j]
		}
		var value, slope, bend float64 // expected loss E ℓ, and its derivatives E ℓ′ and E ℓ″
		for i, z := range at {
			t := centre + deviation*z
			e := math.Exp(-math.Abs(t))
			s, loss := e/(1+e), math.Log(1+e)
			if t < 0 {
				s, loss = 1-s, loss-t
			}
			value += weight[i] * loss
			slope -= weight[i] * s
			bend += weight[i] * s * (1 - s)
		}
		p := a.share(k)
		total += p * value
		for j := range grad { // Stein's lemma: E z·f(t) = deviation·E f′(t)
			grad[j] += p * (slope*m[j] + a.Variance*bend*u[j])
		}
	}
	return total
}

// objective returns the aggregate risk. It sets no minimiser, because no closed form of the minimiser is known.
func (a *aggregateClasses) objective() Objective {
	at, weight := hermite()
	ridge := func(w []float64) float64 {
		return a.Ridge / 2 * mat.Dot(mat.NewVecDense(len(w), w), mat.NewVecDense(len(w), w))
	}
	inputs := len(a.Means[0])
	// The parameter vector of the network is W₂, row by row, then w₁ (learner.Architecture.Layout).
	fold := func(w []float64) []float64 {
		if a.Hidden == 0 {
			return w
		}
		u, w1 := make([]float64, inputs), w[a.Hidden*inputs:]
		for i, v := range w1 {
			for j := range u {
				u[j] += v * w[i*inputs+j]
			}
		}
		return u
	}
	return Objective{
		Risk: func(w []float64) float64 { return a.margin(nil, fold(w), at, weight) + ridge(w) },
		Gradient: func(dst, w []float64) {
			g := make([]float64, inputs)
			a.margin(g, fold(w), at, weight)
			if a.Hidden == 0 {
				copy(dst, g)
			} else {
				a.unfold(dst, w, g)
			}
			for j, v := range w {
				dst[j] += a.Ridge * v
			}
		},
	}
}

// unfold converts the gradient g with respect to u = W₂ᵀw₁ into the gradient with respect to the network's parameters
// w.
func (a *aggregateClasses) unfold(dst, w, g []float64) {
	inputs := len(g)
	for i := range a.Hidden {
		sum := 0.0
		for j, v := range g {
			dst[i*inputs+j] = w[a.Hidden*inputs+i] * v
			sum += w[i*inputs+j] * v
		}
		dst[a.Hidden*inputs+i] = sum
	}
}
