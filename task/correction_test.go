package task_test

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// corrected returns a linear task with a ridge penalty and a proximal term, in which every step uses all rows.
func corrected(mixing wire.MixingSettings) wire.Task {
	return wire.Task{
		Name: "line", Features: []string{"a"}, TargetColumn: "y", Mixing: mixing,
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true,
			Ridge: 0.1},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1, Proximal: 0.7,
			StepTimeBudgetMillis: 1000,
			MinLocalSteps:        1, MaxLocalSteps: 4},
	}
}

// TestAnchor checks that the proximal term pulls the parameters towards the base model in each local step, with and
// without neighbours.
func TestAnchor(t *testing.T) {
	x, y := []float64{1, -2}, []float64{3, 0.5}
	samples := learner.NewSamples(1, x, y)
	base := []float64{0.4, -0.3}
	for _, mixing := range []wire.MixingSettings{{}, {IntervalSteps: 1, SnapshotRetryMillis: 1,
		SnapshotCodec: spec.CodecRaw}} {
		p, err := task.Compile[float64](corrected(mixing))
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.RunLocalSteps(task.LocalJob[float64]{BaseParameters: base, Samples: samples, StepWeight: 1,
			Steps: 4})
		if err != nil {
			t.Fatal(err)
		}
		a, b := base[0], base[1]
		for range 4 {
			ga, gb := 0.1*a+0.7*(a-base[0]), 0.1*b+0.7*(b-base[1])
			for i := range x {
				miss := (a*x[i] + b - y[i]) / 2
				ga, gb = ga+miss*x[i], gb+miss
			}
			a, b = a-0.1*ga, b-0.1*gb
		}
		if math.Abs(out.UpdateVector[0]-(a-base[0])) > 1e-14 || math.Abs(out.UpdateVector[1]-(b-base[1])) > 1e-14 {
			t.Errorf("mixing %+v: change %v, want %v", mixing, out.UpdateVector, []float64{a - base[0], b - base[1]})
		}
		risk := 0.05 * (a*a + b*b)
		for i := range x {
			risk += 0.25 * (a*x[i] + b - y[i]) * (a*x[i] + b - y[i])
		}
		if math.Abs(out.RiskAfter-risk) > 1e-14 {
			t.Errorf("risk %v, want %v: the proximal term is none of the data's", out.RiskAfter, risk)
		}
	}
}

// TestFrozenStays checks that the update of an agent is exactly 0 for frozen parameters.
func TestFrozenStays(t *testing.T) {
	of := corrected(wire.MixingSettings{})
	of.Model.FrozenTensors, of.Training.GradientNoise = []string{"layer0.bias"},
		spec.GradientNoise{Law: spec.NoiseGaussian,
			Variance: 1}
	p, err := task.Compile[float32](of)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.RunLocalSteps(task.LocalJob[float32]{BaseParameters: []float32{0.4, -0.3}, StepWeight: 1, Steps: 3,
		Rand:    task.AgentRand(1, 1, 1),
		Samples: learner.NewSamples(1, []float32{1, -2}, []float32{3, 0.5})})
	if err != nil || out.UpdateVector[0] == 0 || out.UpdateVector[1] != 0 {
		t.Errorf("change %v, error %v", out.UpdateVector, err)
	}
}
