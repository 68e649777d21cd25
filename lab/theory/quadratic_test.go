package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func quadratics() Quadratics {
	q := Quadratics{Hessian: mat.NewSymDense(2, []float64{0.8, 0.2, 0.2, 0.3}),
		Centres: [][]float64{{1, 0}, {-2, 1}, {0.5, 2}},
		Start:   []float64{4, -3}, NoiseVar: 0.7, StepSize: 0.2, Steps: 3, Rounds: 15}
	return q
}

// TestSuboptimalityAgainstSimulation compares the exact suboptimality with a simulation of Algorithm 1 in the notes.
func TestSuboptimalityAgainstSimulation(t *testing.T) {
	q := quadratics()
	rng := rand.New(rand.NewPCG(4, 4))
	star := mat.NewVecDense(2, q.Minimizer())
	const runs = 4000
	values := make([]float64, runs)
	for run := range runs {
		x := append([]float64(nil), q.Start...)
		for range q.Rounds {
			local := make([][]float64, len(q.Centres))
			for i := range local {
				local[i] = append([]float64(nil), x...)
			}
			for range q.Steps {
				x[0], x[1] = 0, 0
				for i, c := range q.Centres {
					a, b := local[i][0]-c[0], local[i][1]-c[1]
					local[i][0] -= q.StepSize * (0.8*a + 0.2*b + math.Sqrt(q.NoiseVar/2)*rng.NormFloat64())
					local[i][1] -= q.StepSize * (0.2*a + 0.3*b + math.Sqrt(q.NoiseVar/2)*rng.NormFloat64())
					x[0] += local[i][0] / 3
					x[1] += local[i][1] / 3
				}
				var e mat.VecDense
				e.SubVec(mat.NewVecDense(2, x), star)
				values[run] += mat.Inner(&e, q.Hessian, &e) / 2 / float64(q.Steps*q.Rounds)
			}
		}
	}
	mean, half := Interval95(values)
	if math.Abs(mean-q.Suboptimality()) > 2*half || half > 0.02*mean {
		t.Errorf("simulated %v ± %v, exact %v", mean, half, q.Suboptimality())
	}
}

// TestBoundHolds checks that the bound exceeds the suboptimality for many step sizes, numbers of local steps and
// rounds. It also compares the bound with a calculation by hand.
func TestBoundHolds(t *testing.T) {
	q := quadratics()
	for _, scale := range []float64{0.01, 0.3, 1} {
		for _, tau := range []int{1, 5, 40} {
			for _, rounds := range []int{1, 10, 300} {
				q.StepSize, q.Steps, q.Rounds = scale/(4*q.Smoothness()), tau, rounds
				if left, right := q.Suboptimality(), q.Bound(); left > right {
					t.Errorf("η = %v, τ = %d, T = %d: %v > %v", q.StepSize, tau, rounds, left, right)
				}
			}
		}
	}
	hand := Quadratics{Hessian: mat.NewSymDense(1, []float64{2}), Centres: [][]float64{{1}, {-1}}, Start: []float64{3},
		// distance D = 3, smoothness L = 2, heterogeneity ζ = 2, clients M = 2
		NoiseVar: 5, StepSize: 0.1, Steps: 4, Rounds: 10}
	near(t, "(4)", hand.Bound(), 9/(2*0.1*40)+0.1*5/2+4*4*0.01*2*5+18*16*0.01*2*4, 1e-14)
	// After one step in one dimension the error is e = 0.8·3 plus noise of variance 0.01·5/2, and F = e².
	hand.Steps, hand.Rounds = 1, 1
	near(t, "one step", hand.Suboptimality(), 2.4*2.4+0.025, 1e-14)
}
