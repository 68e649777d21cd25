package learner

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkLocalSteps times local steps in float32 and, in the same run, the dumb loops of naiveStep on the same draws;
// x_naive is how many times faster the package is. One op is one step.
func BenchmarkLocalSteps(b *testing.B) {
	for _, bench := range []struct {
		name string
		a    Architecture
	}{
		{"linear25", Architecture{Inputs: 25, Outputs: 1}},
		{"softmax561x6", Architecture{Inputs: 561, Outputs: 6, Risk: Softmax, Bias: true}},
		{"mlp561-64-6", Architecture{Inputs: 561, Hidden: []int{64}, Outputs: 6, Activation: ReLU, Risk: Softmax, Bias: true}},
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
	d := Descent[float32]{Model: model, Data: randomSamples[float32](a, 500, rng), BatchSize: batch, Schedule: Schedule{StepSize: 1e-3}}
	w := make([]float32, a.Params())
	model.Init(w, rng)
	// A quarter of the steps also runs on the twin, in alternating slices, so that both see the same machine.
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
		if _, err := d.Run(w, n, 1, 0, rng, nil); err != nil {
			b.Fatal(err)
		}
		own += time.Since(from)
		b.StopTimer()
		twinN := max(1, n/4)
		from = time.Now()
		for range twinN {
			step(twinW, d.Data, batch, 1e-3, rng)
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
