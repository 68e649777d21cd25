package learner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestShortStepIsTheBlockStep checks that the fast local step on one short row gives bitwise the same result as the
// general step.
func TestShortStepIsTheBlockStep(t *testing.T) {
	for _, risk := range []spec.LossKind{spec.LossSquared, spec.LossLogistic, spec.LossFullSquared, spec.LossHuber} {
		for _, inputs := range []int{1, 2, 3, 4, 7, 25, minAssemblyLength - 1} {
			for _, bias := range []bool{false, true} {
				for _, ridge := range []float64{0, 0.3} {
					a := Architecture{Inputs: inputs, Outputs: 1, Risk: risk, HasBias: bias, Ridge: ridge}
					if risk == spec.LossHuber {
						a.HuberDelta = 0.5
					}
					shortStep[float32](t, a)
					shortStep[float64](t, a)
				}
			}
		}
	}
}

func shortStep[T Float](t *testing.T, a Architecture) {
	t.Helper()
	rng := newRNG(50)
	m := newModel[T](t, a)
	if m.rowStepper == nil {
		t.Fatalf("%s with %d inputs is not short", describe(a), a.Inputs)
	}
	got := randomVector[T](a.ParameterCount(), 1, rng)
	want := append([]T(nil), got...)
	for range 20 {
		d := &StepDraw[T]{Batch: randomSamples[T](a, 1, rng).All(), GradientScale: 2}
		m.takeStep(got, d, 0.05, &StepCorrection[T]{})
		m.takeGeneralStep(want, d, 0.05, &StepCorrection[T]{})
	}
	compare(t, fmt.Sprintf("%T, %s, %d inputs: w", got, describe(a), a.Inputs), got, want, 0)
}

// bilinear is the bilinear network of equation (40) in the paper on second-order guarantees ("2nd-order").
var bilinear = Architecture{Inputs: 5, HiddenUnits: []int{3}, Outputs: 1, Activation: spec.ActivationIdentity,
	Risk: spec.LossLogistic, Ridge: 0.1}

// TestBilinearRisk compares the risk of the bilinear network with the explicit formula ln(1 + exp(−γ w₁ᵀW₂h)) +
// (ρ/2)(‖w₁‖² + ‖W₂‖²) (2nd-order paper, equation (40)).
func TestBilinearRisk(t *testing.T) {
	m := newModel[float64](t, bilinear)
	w := randomVector[float64](18, 1, newRNG(51))
	s := randomSamples[float64](bilinear, 1, newRNG(52))
	h, y := s.Row(0)
	z, square := 0.0, 0.0
	for i := range 3 {
		for j := range 5 {
			z += w[15+i] * w[5*i+j] * h[j]
		}
	}
	for _, v := range w {
		square += v * v
	}
	want := math.Log(1+math.Exp(-y*z)) + 0.05*square
	compare(t, "risk", []float64{m.Risk(w, s.All())}, []float64{want}, 1e-14)
	grad := randomVector[float64](18, 1, newRNG(53))
	m.Gradient(grad, make([]float64, 18), s.All())
	compare(t, "gradient at zero, the saddle", grad, make([]float64, 18), 0)
}

// TestSaddleIsLeftByNoiseOnly checks that every stochastic gradient without noise is exactly zero at w = 0, which is
// the saddle point of equation (40) in the 2nd-order paper.
func TestSaddleIsLeftByNoiseOnly(t *testing.T) {
	for _, noise := range []spec.GradientNoise{{}, {Law: spec.NoiseGaussian, Variance: 0.01},
		{Law: spec.NoiseLaplace, Variance: 0.01}} {
		s := &StepSampler[float64]{Data: randomSamples[float64](bilinear, 20, newRNG(54)),
			GradientConfig: GradientConfig{BatchSize: 1, LocalStepProbability: 0.5, Noise: noise}}
		d := &Descent[float64]{Model: newModel[float64](t, bilinear), Draws: s,
			Schedule: StepSizeSchedule{ConstantStepSize: 0.05}}
		w := make([]float64, 18)
		run(t, d, w, 50, 1, 0, newRNG(55))
		norm := 0.0
		for _, v := range w {
			norm += v * v
		}
		if moved := norm > 0; moved != (noise.Variance > 0) {
			t.Errorf("noise %+v: ‖w‖² = %v after 50 steps from zero", noise, norm)
		}
	}
}

// TestComposedStepsMatchTwin compares steps with mini-batches, noise and random skipping, alone and in combination,
// with plain loops that use the same random numbers.
func TestComposedStepsMatchTwin(t *testing.T) {
	for _, a := range []Architecture{bilinear,
		{Inputs: 25, Outputs: 1, Risk: spec.LossSquared, HasBias: true, Ridge: 0.2}} {
		for _, batch := range []int{0, 1, 4, rowBlockSize + 1} {
			for _, response := range []float64{0, 0.5, 1} {
				for _, noise := range []spec.GradientNoise{{}, {Law: spec.NoiseGaussian, Variance: 0.04},
					{Law: spec.NoiseLaplace, Variance: 0.04}} {
					data := randomSamples[float64](a, 40, newRNG(56))
					s := &StepSampler[float64]{Data: data,
						GradientConfig: GradientConfig{BatchSize: batch, LocalStepProbability: response, Noise: noise}}
					d := &Descent[float64]{Model: newModel[float64](t, a), Draws: s,
						Schedule:           StepSizeSchedule{ConstantStepSize: 0.05},
						NormalizesStepSize: true}
					got := randomVector[float64](a.ParameterCount(), 0.3, newRNG(57))
					want := append([]float64(nil), got...)
					run(t, d, got, 10, 2, 0, newRNG(58))
					twin := naiveSampler{a, data, batch, response, noise}
					for rng, e := newRNG(58), 0; e < 10; e++ {
						g := twin.draw(want, rng)
						for i := range want {
							want[i] -= 0.05 * 2 / 10 * g[i]
						}
					}
					compare(t, fmt.Sprintf("%s, batch %d, δ %v, %+v: w", describe(a), batch, response, noise), got,
						want, 1e-12)
				}
			}
		}
	}
}

// naiveSampler is a simple reference implementation of StepSampler and of the stochastic gradient.
type naiveSampler struct {
	a        Architecture
	data     *Samples[float64]
	batch    int
	response float64
	noise    spec.GradientNoise
}

// draw returns the stochastic gradient ĝ(w) = scale·(∇Q(w) + v), where v is the noise.
func (n naiveSampler) draw(w []float64, rng *rand.Rand) []float64 {
	scale := 1.0
	if n.response == 0.5 {
		scale = 0
		if rng.Float64() < 0.5 {
			scale = 2
		}
	}
	var b Batch[float64]
	for range n.batch {
		x, y := n.data.Row(rng.IntN(n.data.Len()))
		b.X, b.Y = append(b.X, x...), append(b.Y, y)
	}
	if n.batch == 0 {
		b = n.data.All()
	}
	g := make([]float64, len(w))
	naive[float64]{n.a}.meanGradient(g, w, b)
	for i := range g {
		v := 0.0
		if n.noise.Variance > 0 && n.noise.Law == spec.NoiseGaussian {
			v = math.Sqrt(n.noise.Variance) * rng.NormFloat64()
		} else if n.noise.Variance > 0 {
			v = math.Sqrt(n.noise.Variance/2) * rng.ExpFloat64()
			v -= math.Sqrt(n.noise.Variance/2) * rng.ExpFloat64()
		}
		g[i] = scale * (g[i] + v)
	}
	return g
}
