package learner

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestProximalStep checks that each local step is φ − μ(ĝ(φ) + ρ_p(φ − w_{i−1})), where φ are the parameters before the
// step, ĝ is the stochastic gradient, μ is the step size, and w_{i−1} is the base model. It tests one and many rows,
// with and without a ridge penalty, and scaling by 1/δ.
func TestProximalStep(t *testing.T) {
	for _, a := range []Architecture{
		{Inputs: 3, Outputs: 1, Risk: spec.LossSquared, HasBias: true},
		{Inputs: 3, Outputs: 1, Risk: spec.LossSquared, Ridge: 0.3},
		{Inputs: 4, HiddenUnits: []int{3}, Outputs: 3, Activation: spec.ActivationTanh, Risk: spec.LossSoftmax,
			Ridge: 0.2},
	} {
		for _, rows := range []int{1, 5, 2*rowBlockSize + 3} {
			rng := newRNG(60)
			m := newModel[float64](t, a)
			anchor := randomVector[float64](a.ParameterCount(), 1, rng)
			by := StepCorrection[float64]{ProximalWeight: 0.7, Anchor: slices.Clone(anchor)}
			w, grad := randomVector[float64](a.ParameterCount(), 1, rng), make([]float64, a.ParameterCount())
			want := slices.Clone(w)
			for range 10 {
				d := &StepDraw[float64]{Batch: randomSamples[float64](a, rows, rng).All(), GradientScale: 2}
				m.takeStep(w, d, 0.05, &by)
				m.Gradient(grad, want, d.Batch)
				for j := range want {
					want[j] -= 0.05 * 2 * (grad[j] + 0.7*(want[j]-anchor[j]))
				}
			}
			compare(t, describe(a), w, want, 1e-12)
			if !slices.Equal(by.Anchor, anchor) {
				t.Error("the anchor was changed")
			}
		}
	}
}

// TestPlus checks that the control variate is added to each gradient and scaled in the same way. It tests one row and
// many rows, and gradient exchange.
func TestPlus(t *testing.T) {
	for _, a := range []Architecture{
		{Inputs: 3, Outputs: 1, Risk: spec.LossSquared, HasBias: true},
		{Inputs: 4, HiddenUnits: []int{3}, Outputs: 3, Activation: spec.ActivationTanh, Risk: spec.LossSoftmax,
			Ridge: 0.2},
	} {
		for _, rows := range []int{1, 5, 2*rowBlockSize + 3} {
			rng := newRNG(63)
			m := newModel[float64](t, a)
			plus := randomVector[float64](a.ParameterCount(), 1, rng)
			d := &StepDraw[float64]{Batch: randomSamples[float64](a, rows, rng).All(), GradientScale: 2}
			w, grad := randomVector[float64](a.ParameterCount(), 1, rng), make([]float64, a.ParameterCount())
			m.Gradient(grad, w, d.Batch)
			want, exchanged := slices.Clone(w), slices.Clone(grad)
			for j := range grad {
				exchanged[j] = 2 * (grad[j] + plus[j])
				want[j] -= 0.05 * exchanged[j]
			}
			by := StepCorrection[float64]{ControlVariate: plus}
			descent := Descent[float64]{Model: m, Correction: by, Draws: fixed[float64]{d}}
			descent.GradientAt(grad, w)
			compare(t, describe(a)+": gradient", grad, exchanged, 1e-12)
			m.takeStep(w, d, 0.05, &by)
			compare(t, describe(a), w, want, 1e-12)
		}
	}
}

// fixed is a StepDrawSource that always returns the same random inputs.
type fixed[T Float] struct{ draw *StepDraw[T] }

func (f fixed[T]) Next(*Model[T]) *StepDraw[T] { return f.draw }

// TestProximalIsInNoRisk checks that neither the risk of a step nor the check for divergence includes the proximal
// term.
func TestProximalIsInNoRisk(t *testing.T) {
	a := Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared}
	m, s := newModel[float64](t, a), randomSamples[float64](a, 4, newRNG(61))
	w := []float64{1, 2}
	by := StepCorrection[float64]{ProximalWeight: 10, Anchor: []float64{-50, 50}}
	want := m.Risk(w, s.All())
	got := m.takeStep(w, &StepDraw[float64]{Batch: s.All(), GradientScale: 1}, 0.01, &by)
	compare(t, "risk", []float64{got}, []float64{want}, 1e-14)
}

// TestFrozen checks that frozen tensors remain bitwise unchanged in every kind of step, and that the other tensors
// change as without frozen tensors.
func TestFrozen(t *testing.T) {
	a := Architecture{Inputs: 4, HiddenUnits: []int{3}, Outputs: 1, Activation: spec.ActivationTanh,
		Risk:    spec.LossSquared,
		HasBias: true, Ridge: 0.1}
	rng := newRNG(62)
	m := newModel[float32](t, a)
	frozen := a.TensorRanges([]string{"layer0.weight", "layer1.bias"})
	if !slices.Equal(frozen, []ElementRange{{0, 12}, {18, 19}}) || !slices.Equal(a.TensorRanges([]string{"layer1"}),
		[]ElementRange{{15, 18}, {18, 19}}) || a.TensorRanges([]string{"layer2", "layer0.wait"}) != nil {
		t.Fatalf("ranges %v, %v", frozen, a.TensorRanges([]string{"layer1"}))
	}
	start := randomVector[float32](a.ParameterCount(), 1, rng)
	by := StepCorrection[float32]{ProximalWeight: 0.5, Anchor: make([]float32, a.ParameterCount()),
		FrozenRanges: frozen}
	free := StepCorrection[float32]{ProximalWeight: 0.5, Anchor: by.Anchor}
	for _, rows := range []int{1, 2*rowBlockSize + 1} {
		w, one := slices.Clone(start), slices.Clone(start)
		d := &StepDraw[float32]{Batch: randomSamples[float32](a, rows, rng).All(), GradientScale: 1,
			Noise: randomVector[float32](a.ParameterCount(), 1, rng)}
		m.takeStep(one, d, 0.1, &free)
		for range 3 {
			m.takeStep(w, d, 0.1, &by)
		}
		for j := range w {
			isFrozen := j < 12 || j == 18
			if isFrozen != (w[j] == start[j]) {
				t.Errorf("%d rows: element %d is %v, it began with %v", rows, j, w[j], start[j])
			}
		}
		again := slices.Clone(start)
		m.takeStep(again, d, 0.1, &by)
		for j := range again {
			if j >= 12 && j != 18 && again[j] != one[j] {
				t.Errorf("%d rows: element %d moves to %v, without frozen ones to %v", rows, j, again[j], one[j])
			}
		}
	}
	grad := make([]float32, a.ParameterCount())
	d := Descent[float32]{Model: m, Correction: by, Draws: &StepSampler[float32]{Data: randomSamples[float32](a, 3,
		rng)}}
	d.GradientAt(grad, start)
	for j, g := range grad {
		if isFrozen := j < 12 || j == 18; isFrozen != (g == 0) {
			t.Errorf("the gradient of element %d is %v", j, g)
		}
	}
}
