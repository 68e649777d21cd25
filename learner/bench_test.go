package learner

import (
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// BenchmarkLocalSteps measures local steps in float32 and compares them with plain loops (naiveStep) on the same random
// samples. The metric x_naive is the speed-up over the plain loops. One operation is one step.
func BenchmarkLocalSteps(b *testing.B) {
	for _, bench := range []struct {
		name string
		a    Architecture
	}{
		{"linear25", Architecture{Inputs: 25, Outputs: 1, Risk: spec.LossSquared}},
		{"softmax561x6", Architecture{Inputs: 561, Outputs: 6, Risk: spec.LossSoftmax, HasBias: true}},
		{"mlp561-64-6", Architecture{Inputs: 561, HiddenUnits: []int{64}, Outputs: 6, Activation: spec.ActivationReLU,
			Risk: spec.LossSoftmax, HasBias: true}},
	} {
		for _, batch := range []int{1, 10, 32} {
			b.Run(fmt.Sprintf("%s/batch%d", bench.name, batch), func(b *testing.B) {
				benchmarkSteps(b, bench.a, batch)
			})
		}
	}
}

func benchmarkSteps(b *testing.B, a Architecture, batch int) {
	model := newModel[float32](b, a)
	rng := newRNG(1)
	data := randomSamples[float32](a, 500, rng)
	d := Descent[float32]{Model: model,
		Draws:    &StepSampler[float32]{Data: data, GradientConfig: GradientConfig{BatchSize: batch}, Rand: rng},
		Schedule: StepSizeSchedule{ConstantStepSize: 1e-3}}
	w := make([]float32, a.ParameterCount())
	model.InitParameters(w, rng)
	// Repeat a quarter of the steps with plain loops, in alternation, so that both variants run under the same
	// conditions.
	const slice = 40
	var own, twin time.Duration
	var twinSteps int
	twinW := append([]float32(nil), w...)
	step := naiveStep(a)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += slice {
		n := min(slice, b.N-done)
		from := time.Now()
		if _, err := d.Run(w, n, 1, 0, nil); err != nil {
			b.Fatal(err)
		}
		own += time.Since(from)
		b.StopTimer()
		twinN := max(1, n/4)
		from = time.Now()
		for range twinN {
			step(twinW, data, batch, 1e-3, rng)
		}
		twin += time.Since(from)
		twinSteps += twinN
		b.StartTimer()
	}
	b.StopTimer()
	perOwn := float64(own) / float64(b.N)
	b.ReportMetric(float64(batch)*1e6/perOwn, "ksamples/s")
	b.ReportMetric(float64(twin)/float64(twinSteps)/perOwn, "x_naive")
}

// BenchmarkRun measures a round of 10 local steps of linear regression with 25 features, including the random draws. It
// compares them with only the arithmetic of such steps on the same rows; the metric of_bare is the relative speed.
func BenchmarkRun(b *testing.B) {
	b.Run("float32", benchmarkRun[float32])
	b.Run("float64", benchmarkRun[float64])
}

func benchmarkRun[T Float](b *testing.B) {
	a := Architecture{Inputs: 25, Outputs: 1, Risk: spec.LossSquared}
	rng := newRNG(1)
	data := randomSamples[T](a, 100, rng)
	d := Descent[T]{Model: newModel[T](b, a),
		Draws:    &StepSampler[T]{Data: data, GradientConfig: GradientConfig{BatchSize: 1}, Rand: rng},
		Schedule: StepSizeSchedule{ConstantStepSize: 1e-3}, NormalizesStepSize: true}
	w, bareW := make([]T, 25), make([]T, 25)
	const rounds, steps = 100, 10
	var own, bare time.Duration
	b.ReportAllocs()
	for b.Loop() {
		from := time.Now()
		for range rounds {
			if _, err := d.Run(w, steps, 1, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
		own += time.Since(from)
		from = time.Now()
		for i := range rounds {
			for e := range steps {
				x, y := data.Row((7*i + e) % 100)
				bareStep(bareW, x, y, 1e-4)
			}
		}
		bare += time.Since(from)
	}
	b.ReportMetric(float64(own)/float64(b.N)/rounds/steps, "ns/step")
	b.ReportMetric(float64(bare)/float64(own), "of_bare")
}

// bareStep performs only the arithmetic of a local step, as a lower bound of its time.
func bareStep[T Float](w, x []T, y, mu T) {
	var z T
	for i := range w {
		z += w[i] * x[i]
	}
	c := mu * (z - y)
	for i := range w {
		w[i] -= c * x[i]
	}
}
