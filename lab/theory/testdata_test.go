package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// near fails the test if the relative difference between got and want exceeds tol.
func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol*math.Max(math.Abs(want), 1e-300)) {
		t.Errorf("%s is %.12g, want %.12g within %g", what, got, want, tol)
	}
}

// mixed returns an LMS problem with K = 6 different agents, d = 3 parameters and correlated features.
func mixed() LMS {
	m := LMS{StepSize: 0.08, Participants: 3}
	rng := rand.New(rand.NewPCG(3, 3))
	for k := range 6 {
		root := mat.NewDense(3, 3, nil)
		root.Apply(func(i, j int, _ float64) float64 {
			if i == j {
				return 0.8 + 0.1*float64((k+j)%4)
			}
			return 0.3 * (2*rng.Float64() - 1)
		}, root)
		a := LMSAgent{Covariance: symmetric(product(root, root.T())), NoiseVar: 0.05 * float64(1+k%3),
			LocalSteps: 1 + k%4, BatchSize: 1 + k%2}
		for range 3 {
			a.Optimum = append(a.Optimum, 1+0.5*rng.NormFloat64())
		}
		m.Agents = append(m.Agents, a)
	}
	return m
}

// simulate runs federated averaging directly. It returns the averages of ‖w⁰ − w_i‖² and of w_i over many rounds, and
// the standard error of the first average.
func simulate(m LMS, rounds int, rng *rand.Rand) (msd, stderr float64, mean []float64) {
	d := len(m.Agents[0].Optimum)
	origin := m.Optimum()
	chol := make([]*mat.Dense, len(m.Agents))
	for k, a := range m.Agents {
		var c mat.Cholesky
		c.Factorize(a.Covariance)
		var l mat.TriDense
		c.LTo(&l)
		chol[k] = mat.DenseCopyOf(&l)
	}
	w, next, phi, grad := make([]float64, d), make([]float64, d), make([]float64, d), make([]float64, d)
	h, z := make([]float64, d), make([]float64, d)
	mean = make([]float64, d)
	copy(w, origin)
	const blocks = 50
	burn := rounds / 10
	values := make([]float64, blocks)
	for i := range burn + rounds {
		copy(next, w)
		for _, k := range draw(m, rng) {
			a := m.Agents[k]
			copy(phi, w)
			for range a.LocalSteps {
				clear(grad)
				for range a.BatchSize {
					for j := range z {
						z[j] = rng.NormFloat64()
					}
					miss := -math.Sqrt(a.NoiseVar) * rng.NormFloat64()
					for r := range h {
						h[r] = 0
						for j := range z {
							h[r] += chol[k].At(r, j) * z[j]
						}
						miss += h[r] * (phi[r] - a.Optimum[r])
					}
					for j := range grad {
						grad[j] += h[j] * miss / float64(a.BatchSize)
					}
				}
				for j := range phi {
					phi[j] -= m.localStep(a) * grad[j]
				}
			}
			for j := range next {
				next[j] += m.gain(a) * (phi[j] - w[j]) / float64(m.Participants)
			}
		}
		w, next = next, w
		if i < burn {
			continue
		}
		for j := range w {
			values[(i-burn)*blocks/rounds] += (w[j] - origin[j]) * (w[j] - origin[j]) * blocks / float64(rounds)
			mean[j] += w[j] / float64(rounds)
		}
	}
	msd, half := Interval95(values)
	return msd, half / 2, mean
}

// draw returns the random participants of one round.
func draw(m LMS, rng *rand.Rand) []int {
	if !m.Replacement {
		return rng.Perm(len(m.Agents))[:m.Participants]
	}
	// An agent that is drawn twice should use one update twice, but simulate would compute a second update.
	panic("not simulated")
}

func norm(v []float64) float64 { return mat.Norm(mat.NewVecDense(len(v), v), 2) }
