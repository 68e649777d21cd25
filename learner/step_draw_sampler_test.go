package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestDrawnGradientIsUnbiased checks that the mean of the stochastic gradient ĝ over many draws is the exact gradient
// g. The variance of each coordinate must be (σ_b² + σ_v² + g²)/δ − g², where σ_b² is the variance of a mini-batch,
// σ_v² is the variance of the noise, and δ is the probability of computing a step.
func TestDrawnGradientIsUnbiased(t *testing.T) {
	a := Architecture{Inputs: 3, Outputs: 1, Ridge: 0.2, Risk: spec.LossSquared}
	data := randomSamples[float64](a, 30, newRNG(60))
	m := newModel[float64](t, a)
	w := randomVector[float64](3, 1, newRNG(61))
	exact, one := make([]float64, 3), make([]float64, 3)
	m.Gradient(exact, w, data.All())
	spread := make([]float64, 3) // variance of the gradient of a single row, for each coordinate
	for i := range data.Len() {
		x, y := data.Row(i)
		m.Gradient(one, w, Batch[float64]{X: x, Y: []float64{y}})
		for j := range one {
			spread[j] += (one[j] - exact[j]) * (one[j] - exact[j]) / 30
		}
	}
	const draws = 30000
	for _, c := range []GradientConfig{
		{BatchSize: 1},
		{BatchSize: 3},
		{BatchSize: 1, LocalStepProbability: 0.25},
		{Noise: spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 0.5}},
		{Noise: spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.5}},
		{BatchSize: 2, LocalStepProbability: 0.5, Noise: spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.5}},
	} {
		s := &StepSampler[float64]{GradientConfig: c, Data: data, Rand: newRNG(62)}
		d := Descent[float64]{Model: m, Draws: s}
		sum, squares := make([]float64, 3), make([]float64, 3)
		for range draws {
			d.GradientAt(one, w)
			for j, g := range one {
				sum[j] += g / draws
				squares[j] += g * g / draws
			}
		}
		for j, g := range exact {
			inner := s.Noise.Variance + g*g
			if s.BatchSize > 0 {
				inner += spread[j] / float64(s.BatchSize)
			}
			want := inner - g*g
			if s.LocalStepProbability > 0 {
				want = inner/s.LocalStepProbability - g*g
			}
			if bound := 5 * math.Sqrt(want/draws); math.Abs(sum[j]-g) > bound {
				t.Errorf("%+v: mean of coordinate %d is %v, want %v ± %v", c, j, sum[j], g, bound)
			}
			if got := squares[j] - sum[j]*sum[j]; math.Abs(got/want-1) > 0.08 {
				t.Errorf("%+v: variance of coordinate %d is %v, want %v", c, j, got, want)
			}
		}
	}
}

// TestNoiseLaws distinguishes Gaussian and Laplace noise by the fourth moment, which is 3σ⁴ and 6σ⁴. It also checks
// that the coordinates are uncorrelated.
func TestNoiseLaws(t *testing.T) {
	for _, law := range []spec.NoiseLaw{spec.NoiseGaussian, spec.NoiseLaplace} {
		const variance = 0.7
		v := make([]float64, 2)
		var mean, second, fourth, cross float64
		const draws = 100000
		rng := newRNG(63)
		for range draws {
			drawNoise(spec.GradientNoise{Law: law, Variance: variance}, v, rng)
			mean += v[0] / draws
			second += v[0] * v[0] / draws
			fourth += v[0] * v[0] * v[0] * v[0] / draws
			cross += v[0] * v[1] / draws
		}
		fourths := map[spec.NoiseLaw]float64{spec.NoiseGaussian: 3, spec.NoiseLaplace: 6}
		if math.Abs(mean) > 0.01 || math.Abs(cross) > 0.01 || math.Abs(second/variance-1) > 0.02 ||
			math.Abs(fourth/(variance*variance)/fourths[law]-1) > 0.05 {
			t.Errorf("%v: mean %v, variance %v, fourth moment %v, covariance %v", law, mean, second, fourth, cross)
		}
	}
}

// TestResponseLeavesOtherDrawsAlone checks that agents that differ only in the probability δ of computing a step draw
// the same samples and noise.
func TestResponseLeavesOtherDrawsAlone(t *testing.T) {
	a := Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared}
	m := newModel[float64](t, a)
	data := randomSamples[float64](a, 30, newRNG(64))
	c := GradientConfig{BatchSize: 2, LocalStepProbability: 0.9,
		Noise: spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 1}}
	often := StepSampler[float64]{GradientConfig: c, Data: data, Rand: newRNG(65)}
	c.LocalStepProbability = 0.1
	seldom := StepSampler[float64]{GradientConfig: c, Data: data, Rand: newRNG(65)}
	responses := map[float64]int{}
	for range 1000 {
		x, y := often.Next(m), seldom.Next(m)
		compare(t, "features", y.Batch.X, x.Batch.X, 0)
		compare(t, "noise", y.Noise, x.Noise, 0)
		responses[x.GradientScale]++
		responses[-y.GradientScale]++
	}
	if n := responses[1/0.9]; n < 850 || n > 950 {
		t.Errorf("%d responses of 1000 at δ = 0.9", n)
	}
	if n := responses[-10]; n < 50 || n > 150 {
		t.Errorf("%d responses of 1000 at δ = 0.1", n)
	}
}

// counting is a stream of samples with the feature k and the target 2k for k = 1, 2, …
type counting struct{ k float64 }

func (c *counting) Sample(x []float64) float64 {
	c.k++
	x[0] = c.k
	return 2 * c.k
}

func TestStreamGivesFreshSamples(t *testing.T) {
	m := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossSquared})
	s := &StepSampler[float64]{Stream: &counting{}, GradientConfig: GradientConfig{BatchSize: 3}}
	if err := s.Validate(m); err != nil {
		t.Fatal(err)
	}
	compare(t, "first batch", s.Next(m).Batch.X, []float64{1, 2, 3}, 0)
	second := s.Next(m)
	compare(t, "second batch", second.Batch.X, []float64{4, 5, 6}, 0)
	compare(t, "its targets", second.Batch.Y, []float64{8, 10, 12}, 0)
	s.BatchSize = 1
	compare(t, "one more", s.Next(m).Batch.X, []float64{7}, 0)
}

func TestValidateSampler(t *testing.T) {
	m := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossSquared})
	for _, test := range []struct {
		change func(*StepSampler[float64])
		want   string // expected error; empty means that the input is valid
	}{
		{func(*StepSampler[float64]) {}, ""},
		{func(s *StepSampler[float64]) {
			s.BatchSize, s.LocalStepProbability, s.Noise = 65536, 1, spec.GradientNoise{Law: spec.NoiseLaplace,
				Variance: 1}
		}, ""},
		{func(s *StepSampler[float64]) { s.Data, s.Stream, s.BatchSize = nil, &counting{}, 1 }, ""},
		{func(s *StepSampler[float64]) { s.Data = nil }, "a sampler requires either stored samples or a stream"},
		{func(s *StepSampler[float64]) { s.Stream = &counting{} },
			"a sampler requires either stored samples or a stream"},
		{func(s *StepSampler[float64]) { s.Data, s.Stream = nil, &counting{} },
			"batch size is 0, but must be between 1 and 65536 with a stream"},
		{func(s *StepSampler[float64]) { s.Data = NewSamples[float64](1, nil, nil) }, "no samples to train on"},
		{func(s *StepSampler[float64]) { s.Data = NewSamples(2, []float64{1, 2}, []float64{1}) },
			"samples have 2 features, but the model has 1 inputs"},
		{func(s *StepSampler[float64]) { s.BatchSize = -1 }, "batch size is -1, but must be between 1 and 65536, or " +
			"0 for all rows"},
		{func(s *StepSampler[float64]) { s.BatchSize = 65537 },
			"batch size is 65537, but must be between 1 and 65536, or 0 for all rows"},
		{func(s *StepSampler[float64]) { s.LocalStepProbability = 1.5 },
			"step probability is 1.5, but must be above 0 and at most 1, or 0 to take every step"},
		{func(s *StepSampler[float64]) { s.LocalStepProbability = math.NaN() },
			"step probability is NaN, but must be above 0 and at most 1, or 0 to take every step"},
		{func(s *StepSampler[float64]) { s.Noise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: -1} },
			"gradient_noise.variance: invalid value -1: must be a positive number with the law gaussian"},
		{func(s *StepSampler[float64]) {
			s.Noise = spec.GradientNoise{Law: spec.NoiseLaplace, Variance: math.Inf(1)}
		},
			"gradient_noise.variance: invalid value +Inf: must be a positive number with the law laplace"},
		{func(s *StepSampler[float64]) { s.Noise.Law = "white" },
			`gradient_noise.law: want none, gaussian or laplace, got "white"`},
		{func(s *StepSampler[float64]) { s.Noise.Variance = 1 },
			`gradient_noise.law: want none, gaussian or laplace, got ""`},
	} {
		s := StepSampler[float64]{Data: NewSamples(1, []float64{1}, []float64{1})}
		test.change(&s)
		got := ""
		if err := s.Validate(m); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestStragglingStepsCount(t *testing.T) {
	d := line(t, 1, StepSizeSchedule{ConstantStepSize: 0.1})
	d.Draws.(*StepSampler[float64]).LocalStepProbability = 1e-9
	w := []float64{1, 2}
	run(t, d, w, 20, 1, 0, newRNG(66))
	compare(t, "w", w, []float64{1, 2}, 0)
	grad := []float64{3, 4}
	d.GradientAt(grad, w)
	compare(t, "gradient", grad, []float64{0, 0}, 0)
}
