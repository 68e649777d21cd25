package learner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func describe(a Architecture) string {
	return fmt.Sprintf("%v_%v%v_bias=%v_ridge=%v", a.Risk, a.Activation, a.HiddenUnits, a.HasBias, a.Ridge)
}

// sizes contains the tested numbers of rows: one row, a part of a block, one block, and blocks with a remainder.
var sizes = []int{1, 7, rowBlockSize, 2*rowBlockSize + 5}

func TestGradientMatchesNaiveTwin(t *testing.T) {
	for _, a := range append(architectures(), wideArchitectures()...) {
		t.Run(describe(a), func(t *testing.T) {
			twinGradient[float64](t, a, 1e-12)
			twinGradient[float32](t, a, 2e-5)
		})
	}
}

// wideArchitectures returns architectures with rows long enough for the assembly kernels.
func wideArchitectures() []Architecture {
	return []Architecture{
		{Inputs: 67, Outputs: 1, HasBias: true, Ridge: 0.1, Risk: spec.LossSquared},
		{Inputs: 67, HiddenUnits: []int{33}, Outputs: 4, Activation: spec.ActivationTanh, Risk: spec.LossSoftmax,
			HasBias: true},
		{Inputs: 40, HiddenUnits: []int{17, 16}, Outputs: 1, Risk: spec.LossLogistic, Activation: spec.ActivationReLU,
			Ridge: 0.1},
	}
}

func twinGradient[T Float](t *testing.T, a Architecture, tolerance float64) {
	t.Helper()
	rng := newRNG(3)
	m := newModel[T](t, a)
	w := randomVector[T](a.ParameterCount(), 0.3, rng)
	grad, want := randomVector[T](len(w), 1, rng), make([]T, len(w)) // The elements of grad must be overwritten.
	for _, n := range sizes {
		batch := randomSamples[T](a, n, rng).All()
		risk, wantRisk := m.Gradient(grad, w, batch), naive[T]{a}.meanGradient(want, w, batch)
		if math.Abs(risk-wantRisk) > tolerance*(1+wantRisk) {
			t.Errorf("%T, %d rows: risk %v, twin %v", grad[0], n, risk, wantRisk)
		}
		compare(t, fmt.Sprintf("%T, %d rows: gradient", grad[0], n), grad, want, tolerance)
	}
}

// outputs returns the outputs of the model for one row.
func outputs[T Float](m *Model[T], w, x []T) []T {
	row := Batch[T]{X: x, Y: make([]T, 1)}
	if l, ok := m.objective.(*linearModel[T]); ok {
		return l.forward(w, row)
	}
	return m.objective.(*network[T]).forward(w, row)
}

// compare requires |got − want| ≤ tolerance·(1 + |want|) for every element.
func compare[T Float](t *testing.T, what string, got, want []T, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: length %d, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) <= tolerance*(1+math.Abs(float64(want[i])))) {
			t.Errorf("%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

func TestStepIsAGradientStep(t *testing.T) {
	const mu = 0.05
	for _, a := range append(architectures(), wideArchitectures()...) {
		for _, n := range sizes {
			rng := newRNG(4)
			m := newModel[float64](t, a)
			batch := randomSamples[float64](a, n, rng).All()
			w := randomVector[float64](a.ParameterCount(), 0.3, rng)
			want, grad := append([]float64(nil), w...), make([]float64, len(w))
			naive[float64]{a}.meanGradient(grad, w, batch)
			for i := range want {
				want[i] -= mu * grad[i]
			}
			m.takeStep(w, &StepDraw[float64]{Batch: batch, GradientScale: 1}, mu, &StepCorrection[float64]{})
			compare(t, fmt.Sprintf("%s, %d rows: w", describe(a), n), w, want, 1e-12)
		}
	}
}

func TestOutputByHand(t *testing.T) {
	a := Architecture{Inputs: 2, HiddenUnits: []int{2}, Outputs: 1, Activation: spec.ActivationReLU, HasBias: true,
		Risk: spec.LossSquared}
	m := newModel[float32](t, a)
	// The elements are layer0.weight [[1 2] [3 4]], layer0.bias [1 −20], layer1.weight [[5 6]] and layer1.bias [7].
	w := []float32{1, 2, 3, 4, 1, -20, 5, 6, 7}
	// The second hidden unit is inactive, so only the first hidden unit contributes to the output.
	if got := outputs(m, w, []float32{1, 1}); got[0] != 5*4+7 {
		t.Errorf("output %v, want 27", got[0])
	}
}

func TestInit(t *testing.T) {
	flat := newModel[float64](t, Architecture{Inputs: 3, Outputs: 1, HasBias: true, Risk: spec.LossSquared})
	w := []float64{1, 1, 1, 1}
	flat.InitParameters(w, nil)
	compare(t, "linear start", w, make([]float64, 4), 0)

	a := Architecture{Inputs: 30, HiddenUnits: []int{20, 10}, Outputs: 1, HasBias: true,
		Activation: spec.ActivationTanh,
		Risk:       spec.LossSquared}
	m := newModel[float64](t, a)
	w = randomVector[float64](a.ParameterCount(), 1, newRNG(5))
	m.InitParameters(w, newRNG(6))
	bounds := map[string]float64{"layer0.weight": math.Sqrt(6. / 50), "layer1.weight": math.Sqrt(6. / 30)}
	for _, tensor := range a.Layout() {
		n := tensor.elementCount()
		view := w[:n]
		w = w[n:]
		bound := bounds[tensor.Name]
		if low, top := slices.Min(view), slices.Max(view); top > bound || top < 0.9*bound || -low > bound ||
			-low < 0.9*bound {
			t.Errorf("%s: the start is %v to %v, want just within ±%v", tensor.Name, low, top, bound)
		}
	}
}

func TestMismatchedLengthsPanic(t *testing.T) {
	m := newModel[float32](t, Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared})
	two, three := make([]float32, 2), make([]float32, 3)
	for name, call := range map[string]func(){
		"w":       func() { m.Risk(three, Batch[float32]{X: two, Y: three[:1]}) },
		"grad":    func() { m.Gradient(three, two, Batch[float32]{X: two, Y: three[:1]}) },
		"batch":   func() { m.Risk(two, Batch[float32]{X: three, Y: three[:1]}) },
		"init":    func() { m.InitParameters(three, nil) },
		"samples": func() { NewSamples(2, three, two) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}
