package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func bilinear() Bilinear {
	b := Bilinear{Hidden: 3, Variance: 1, Ridge: 0.1}
	for k := range 7 {
		m := make([]float64, 5)
		for j := range m {
			m[j] = (0.5+float64(k)/6)/math.Sqrt(5) + 0.3*math.Cos(2*math.Pi*float64((k+1)*(j+1))/7)
		}
		b.Means = append(b.Means, m)
	}
	return b
}

func point(n int, scale float64) []float64 {
	rng := rand.New(rand.NewPCG(5, 5))
	w := make([]float64, n)
	for i := range w {
		w[i] = scale * rng.NormFloat64()
	}
	return w
}

// TestBilinearDerivatives compares the gradient and the Hessian with finite differences.
func TestBilinearDerivatives(t *testing.T) {
	b := bilinear()
	b.Variance, b.Weights = 1.7, []float64{0.1, 0.2, 0.05, 0.15, 0.2, 0.2, 0.1}
	w := point(18, 0.6)
	grad, hessian := b.Gradient(w), b.Hessian(w)
	const step = 1e-5
	for i := range w {
		up, down := append([]float64(nil), w...), append([]float64(nil), w...)
		up[i] += step
		down[i] -= step
		if d := (b.Risk(up) - b.Risk(down)) / (2 * step); math.Abs(d-grad[i]) > 1e-9 {
			t.Errorf("∂J/∂w%d is %v, by differences %v", i, grad[i], d)
		}
		gu, gd := b.Gradient(up), b.Gradient(down)
		for j := range w {
			if d := (gu[j] - gd[j]) / (2 * step); math.Abs(d-hessian.At(i, j)) > 1e-8 {
				t.Errorf("∂²J/∂w%d∂w%d is %v, by differences %v", i, j, hessian.At(i, j), d)
			}
		}
	}
}

// TestBilinearRiskAgainstSamples compares the risk with the mean loss over random samples.
func TestBilinearRiskAgainstSamples(t *testing.T) {
	b := bilinear()
	w := point(18, 0.5)
	rng := rand.New(rand.NewPCG(6, 6))
	const n = 200_000
	values := make([]float64, n)
	for i := range values {
		gamma, m, z := float64(1-2*rng.IntN(2)), b.Means[rng.IntN(7)], 0.0
		for j := range m {
			h := gamma*m[j] + rng.NormFloat64()
			for r := range 3 {
				z += w[15+r] * w[r*5+j] * h
			}
		}
		values[i] = math.Log(1 + math.Exp(-gamma*z))
	}
	mean, half := Interval95(values)
	ridge := 0.05 * norm(w) * norm(w)
	if math.Abs(mean+ridge-b.Risk(w)) > 2*half || half > 0.005 {
		t.Errorf("J = %v, from samples %v ± %v", b.Risk(w), mean+ridge, half)
	}
}

// TestBilinearSaddle checks that the point 0 is a strict saddle: the gradient is zero, the risk is ln 2, and the
// smallest eigenvalue ρ − ½‖Σp_k m_k‖ is negative.
func TestBilinearSaddle(t *testing.T) {
	b := bilinear()
	zero := make([]float64, 18)
	near(t, "J(0)", b.Risk(zero), math.Ln2, 1e-12)
	if g := norm(b.Gradient(zero)); g > 0 {
		t.Errorf("‖∇J(0)‖ = %v", g)
	}
	mean := mat.NewVecDense(5, nil)
	for _, m := range b.Means {
		mean.AddScaledVec(mean, 1.0/7, mat.NewVecDense(5, m))
	}
	near(t, "λ_min(0)", b.SmallestEigenvalue(zero), 0.1-mat.Norm(mean, 2)/2, 1e-10)
	if b.SmallestEigenvalue(zero) >= 0 {
		t.Error("0 is no strict saddle here")
	}
}

// TestBilinearMinimum checks that the returned point is a minimum: the gradient is zero, no eigenvalue is negative, and
// gradient descent does not end lower. For a large ridge the minimum is at 0.
func TestBilinearMinimum(t *testing.T) {
	b := bilinear()
	best, w := b.Minimum()
	near(t, "J at the minimum", b.Risk(w), best, 1e-12)
	if g := norm(b.Gradient(w)); g > 1e-9 {
		t.Errorf("gradient %v at the minimum", g)
	}
	if l := b.SmallestEigenvalue(w); l < -1e-9 {
		t.Errorf("λ_min = %v at the minimum", l)
	}
	x := point(18, 1)
	for range 2000 {
		for i, g := range b.Gradient(x) {
			x[i] -= 0.5 * g
		}
	}
	near(t, "J by plain descent", b.Risk(x), best, 1e-8)
	b.Ridge = 10
	if best, w := b.Minimum(); norm(w) > 0 || math.Abs(best-math.Ln2) > 1e-12 {
		t.Errorf("ρ = 10: J* = %v at %v", best, w)
	}
}
