package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// unlike returns a problem with two agents that differ in all parameters, and a point at which to test.
func unlike() (Averaged, []float64) {
	return Averaged{
		Bilinear: Bilinear{Hidden: 2, Means: [][]float64{{1, 0.5}, {-0.3, 0.8}}, Variance: 0.7, Ridge: 0.2,
			Weights: []float64{0.3, 0.7}},
		Participants: 1, LocalSteps: 1, BatchSize: 2, StepSize: 0.05, ResponseProb: 0.6, NoiseVar: 0.3,
	}, []float64{0.4, -0.2, 0.1, 0.6, 0.5, -0.3}
}

// TestAveragedNoise compares the covariance from eq. (35) of the paper on second-order guarantees with the covariance
// of randomly drawn gradients (eqs. (7)–(9) and (20)), for E = 1 local step.
func TestAveragedNoise(t *testing.T) {
	a, w := unlike()
	rng := rand.New(rand.NewPCG(5, 0))
	const draws = 400_000
	sum, squares := mat.NewVecDense(6, nil), mat.NewSymDense(6, nil)
	for range draws {
		k := rng.IntN(2)
		g := make([]float64, 6)
		if rng.Float64() < a.ResponseProb {
			for range a.BatchSize {
				x, u := make([]float64, 2), make([]float64, 2)
				margin := 0.0
				for j := range x {
					x[j] = a.Means[k][j] + math.Sqrt(a.Variance)*rng.NormFloat64()
					u[j] = w[4]*w[j] + w[5]*w[2+j]
					margin += u[j] * x[j]
				}
				slope := -1 / (1 + math.Exp(margin)) / float64(a.BatchSize)
				for j := range x {
					g[j] += slope * w[4] * x[j]
					g[2+j] += slope * w[5] * x[j]
					g[4] += slope * w[j] * x[j]
					g[5] += slope * w[2+j] * x[j]
				}
			}
			// Multiply by K·p_k, the weight of one participant out of K agents.
			for j := range g {
				g[j] = 2 * a.Weights[k] * (g[j] + a.Ridge*w[j] +
					math.Sqrt(a.NoiseVar)*rng.NormFloat64()) / a.ResponseProb
			}
		}
		v := mat.NewVecDense(6, g)
		sum.AddVec(sum, v)
		squares.SymRankOne(squares, 1./draws, v)
	}
	sum.ScaleVec(1./draws, sum)
	squares.SymRankOne(squares, -1, sum)
	want, mean := a.Noise(w), a.Gradient(w)
	for i := range 6 {
		if math.Abs(sum.AtVec(i)-mean[i]) > 0.01 {
			t.Errorf("mean %d is %.4g, want %.4g", i, sum.AtVec(i), mean[i])
		}
		for j := range 6 {
			if got := squares.At(i, j); math.Abs(got-want.At(i, j)) > 0.015*math.Sqrt(want.At(i, i)*want.At(j, j)) {
				t.Errorf("covariance %d, %d is %.4g, want %.4g", i, j, got, want.At(i, j))
			}
		}
	}
}

// TestAveragedAtTheSaddle checks that the added gradient noise is the only noise at the saddle. Without it, the model
// never leaves the saddle.
func TestAveragedAtTheSaddle(t *testing.T) {
	a, w := unlike()
	clear(w)
	noise, each := a.Noise(w), 2*(0.3*0.3+0.7*0.7)*a.NoiseVar/a.ResponseProb
	for i := range w {
		for j := range w {
			want := 0.0
			if i == j {
				want = each
			}
			if math.Abs(noise.At(i, j)-want) > 1e-12 {
				t.Errorf("covariance %d, %d is %v, want %v", i, j, noise.At(i, j), want)
			}
		}
	}
	lowest, _ := a.Minimum()
	level := (math.Ln2 + lowest) / 2
	if with := a.Escape(level, 10_000); with <= 0 {
		t.Errorf("with v it escapes at %d", with)
	}
	a.NoiseVar = 0
	if without, still := a.Escape(level, 10_000), a.Descent(w, level, 100); without != -1 || still != -1 {
		t.Errorf("without v it escapes at %d, and with exact gradients at %d", without, still)
	}
}

// TestAveragedDescent compares the number of rounds from Descent with a simulation of E exact gradient steps per round.
func TestAveragedDescent(t *testing.T) {
	a, w := unlike()
	for j := range w {
		w[j] *= 0.05
	}
	a.LocalSteps = 5
	lowest, _ := a.Minimum()
	level := (math.Ln2 + lowest) / 2
	got, want, at := a.Descent(w, level, 10_000), 0, append([]float64(nil), w...)
	for ; a.Risk(at) > level; want++ {
		for range a.LocalSteps {
			for j, g := range a.Gradient(at) {
				at[j] -= a.StepSize / float64(a.LocalSteps) * g
			}
		}
	}
	if got != want || want < 10 {
		t.Errorf("reaches the level in round %d, want %d", got, want)
	}
}

// TestAveragedSteady checks the ratio of the two results of Steady for a Hessian whose relevant eigenvalues are all σ.
// In this case, the excess risk is gradient/(2σ).
func TestAveragedSteady(t *testing.T) {
	a, _ := unlike()
	a.Hidden, a.Means, a.Weights = 1, [][]float64{{0.9}}, nil
	excess, gradient := a.Steady()
	_, star := a.Minimum()
	h := a.Hessian(star)
	var eig mat.EigenSym
	eig.Factorize(h, false)
	low, high := eig.Values(nil)[0], eig.Values(nil)[1]
	if low <= 0 || excess < gradient/(2*high) || excess > gradient/(2*low) {
		t.Errorf("excess %v, gradient %v with eigenvalues %v and %v", excess, gradient, low, high)
	}
	a.StepSize /= 2
	if half, _ := a.Steady(); math.Abs(half/excess-0.5) > 1e-9 {
		t.Errorf("at half the step size %v, not half of %v", half, excess)
	}
}
