package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func regression(n, rows, d int) Regression {
	rng := rand.New(rand.NewPCG(7, 7))
	var r Regression
	for i := range n {
		x := mat.NewDense(rows, d, nil)
		x.Apply(func(_, _ int, _ float64) float64 { return rng.NormFloat64() }, x)
		y := make([]float64, rows)
		for j := range y {
			y[j] = math.Pow(2, float64(i)) * rng.NormFloat64()
		}
		r.X, r.Y = append(r.X, x), append(r.Y, y)
	}
	return r
}

// TestRegressionConstants checks the constants by their definitions. The gradient must be zero at the minimiser z*. The
// curvature must lie between the strong convexity and the smoothness. The heterogeneity Γ must be the mean excess risk
// of z*.
func TestRegressionConstants(t *testing.T) {
	r := regression(5, 3, 6)
	c, err := r.Constants()
	if err != nil {
		t.Fatal(err)
	}
	const step = 1e-4
	for j := range 6 {
		up, down := append([]float64(nil), c.Minimizer...), append([]float64(nil), c.Minimizer...)
		up[j] += step
		down[j] -= step
		if g := (r.risk(up) - r.risk(down)) / (2 * step); math.Abs(g) > 1e-6*c.Minimum {
			t.Errorf("∂f/∂z%d at the minimiser is %v", j, g)
		}
	}
	near(t, "f*", r.risk(c.Minimizer), c.Minimum, 1e-12)
	near(t, "Γ, when each F_i can be fitted", c.Heterogeneity, c.Minimum, 1e-10)
	rng := rand.New(rand.NewPCG(8, 8))
	for range 200 {
		v, z := make([]float64, 6), make([]float64, 6)
		for j := range v {
			v[j] = rng.NormFloat64()
		}
		size := norm(v)
		for j := range v {
			v[j] /= size
			z[j] = c.Minimizer[j] + v[j]
		}
		if gain := 2 * (r.risk(z) - c.Minimum); gain < c.StrongConvexity*(1-1e-9) || gain > c.Smoothness {
			t.Errorf("curvature %v outside [%v, %v]", gain, c.StrongConvexity, c.Smoothness)
		}
		for i := range r.X {
			if curvature := 2 * (r.local(i, add(z, v)) - 2*r.local(i, z) +
				r.local(i, sub(z, v))) / 2; curvature > c.Smoothness*(1+1e-6) {
				t.Errorf("curvature %v of F_%d exceeds %v", curvature, i, c.Smoothness)
			}
		}
	}
	if _, err := regression(1, 3, 6).Constants(); err == nil {
		t.Error("three rows have one minimiser in six dimensions")
	}
	tall, err := regression(3, 9, 4).Constants()
	if err != nil || !(tall.Heterogeneity > 0 && tall.Heterogeneity < tall.Minimum) {
		t.Errorf("Γ = %v of f* = %v: %v", tall.Heterogeneity, tall.Minimum, err)
	}
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

func sub(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// TestFedDecBound compares the bound of Theorem 1 with a calculation by hand.
func TestFedDecBound(t *testing.T) {
	f := FedDec{Constants: Constants{StrongConvexity: 0.5, Smoothness: 2, Heterogeneity: 3}, Agents: 4, Participants: 2,
		ServerEvery: 10, Alpha: 1.5, GradientBound: 1.5, NoiseVar: 8, Start: 7}
	near(t, "γ", f.Gamma(10), 31, 0)
	near(t, "γ for a large H", f.Gamma(100), 100, 0)
	b := 10*1.5*10*2.25 + 6*2*3 + 2.0
	near(t, "Theorem 1", f.Bound(9), 2.0/40*(2*b/0.25+16*49), 1e-12)
}

// local returns the risk F_i(z) of agent i.
func (r Regression) local(i int, z []float64) float64 {
	sum := 0.0
	for row, y := range r.Y[i] {
		miss := mat.Dot(r.X[i].RowView(row), mat.NewVecDense(len(z), z)) - y
		sum += miss * miss
	}
	return sum / float64(len(r.Y[i]))
}

// risk returns the mean risk f(z) of all agents.
func (r Regression) risk(z []float64) float64 {
	sum := 0.0
	for i := range r.X {
		sum += r.local(i, z)
	}
	return sum / float64(len(r.X))
}
