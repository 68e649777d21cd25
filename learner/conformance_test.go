package learner

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// kindCases returns small architectures of every kind of model, for tests by finite differences. The test fails if a
// kind of model has no case.
func kindCases(t *testing.T) map[spec.ModelKind][]Architecture {
	t.Helper()
	cases := map[spec.ModelKind][]Architecture{}
	for _, a := range append(architectures(), wideArchitectures()...) {
		cases[a.resolvedKind()] = append(cases[a.resolvedKind()], a)
	}
	for _, bias := range []bool{false, true} {
		cases[spec.ModelLinear] = append(cases[spec.ModelLinear],
			Architecture{Inputs: 4, Outputs: 1, Risk: spec.LossHuber, HuberDelta: 0.5, HasBias: bias})
	}
	for _, hidden := range [][]int{{2}, {5, 2, 3}} {
		for _, activation := range []spec.Activation{spec.ActivationTanh, spec.ActivationReLU} {
			for _, bias := range []bool{false, true} {
				cases[spec.ModelAutoencoder] = append(cases[spec.ModelAutoencoder],
					Architecture{Kind: spec.ModelAutoencoder, Inputs: 4, HiddenUnits: hidden, Outputs: 1,
						Activation: activation, Risk: spec.LossSquared, HasBias: bias, Ridge: 0.3})
			}
		}
	}
	cases[spec.ModelConv1D] = convolutions()
	return cases
}

// TestObjectives runs the common tests on every kind of model.
func TestObjectives(t *testing.T) {
	cases, table := kindCases(t), objectiveConstructorByKind[float64]()
	words := slices.Sorted(slices.Values(spec.ModelKinds()))
	if a, b := slices.Sorted(maps.Keys(cases)), slices.Sorted(maps.Keys(table)); !slices.Equal(a, words) ||
		!slices.Equal(b, words) {
		t.Errorf("there are cases of %v, the table has %v, package spec %v", a, b, words)
	}
	for kind, all := range cases {
		for _, a := range all {
			t.Run(fmt.Sprintf("%s/%s_in=%d", kind, describe(a), a.Inputs), func(t *testing.T) {
				for name, try := range map[string]func(*testing.T, Architecture){
					"layout": hasLayout, "init": beginsAlike, "gradient": matchesDifferences, "risk": meansRows,
					"block": addsBlocks[float64], "block32": addsBlocks[float32], "score": scoresRows,
					"labels": keepsLabels, "NaN": showsNaN, "memory": allocatesNothing, "units": changesUnits,
				} {
					t.Run(name, func(t *testing.T) { try(t, a) })
				}
			})
		}
	}
}

// hasLayout checks that the tensors of the layout fill the parameter vector, that each tensor has an effect on the
// outputs, and that the tensors have different names.
func hasLayout(t *testing.T, a Architecture) {
	m, rng := newModel[float64](t, a), newRNG(1)
	grad, seen, at := make([]float64, a.ParameterCount()), map[string]bool{}, 0
	m.Gradient(grad, randomVector[float64](a.ParameterCount(), 0.7, rng), randomSamples[float64](a, 40, rng).All())
	for _, tensor := range a.Layout() {
		n := int(tensor.elementCount())
		if seen[tensor.Name] || n < 1 || strings.Count(tensor.Name, ".") > 1 {
			t.Errorf("tensor %q of shape %v", tensor.Name, tensor.Shape)
		}
		seen[tensor.Name] = true
		if r := a.TensorRanges([]string{tensor.Name}); !slices.Equal(r, []ElementRange{{at, at + n}}) {
			t.Errorf("%s is at %v, want %d to %d", tensor.Name, r, at, at+n)
		}
		if !slices.ContainsFunc(grad[at:at+n], func(g float64) bool { return g != 0 }) {
			t.Errorf("no element of %s changes the risk", tensor.Name)
		}
		at += n
	}
	if at != a.ParameterCount() {
		t.Errorf("the layout has %d elements of %d", at, a.ParameterCount())
	}
}

// beginsAlike checks that a seed always gives the same initial parameters, whatever the previous content of the vector
// and the precision. The random generator must be in the same state afterwards.
func beginsAlike(t *testing.T, a Architecture) {
	single, double := newModel[float32](t, a), newModel[float64](t, a)
	rng, same, other := newRNG(2), newRNG(2), newRNG(2)
	w, again := make([]float64, a.ParameterCount()), randomVector[float64](a.ParameterCount(), 1, newRNG(3))
	rounded := randomVector[float32](a.ParameterCount(), 1, newRNG(4))
	double.InitParameters(w, rng)
	double.InitParameters(again, same)
	single.InitParameters(rounded, other)
	for i, v := range w {
		if again[i] != v || rounded[i] != float32(v) {
			t.Fatalf("element %d begins at %v, %v and %v", i, v, again[i], rounded[i])
		}
	}
	next := rng.Uint64()
	if a, b := same.Uint64(), other.Uint64(); a != next || b != next {
		t.Errorf("the draws after it are %x, %x and %x", next, a, b)
	}
	if next == newRNG(2).Uint64() {
		double.InitParameters(w, nil) // These initial parameters need no random numbers.
	}
}

// matchesDifferences compares the gradient with central differences of the risk.
func matchesDifferences(t *testing.T, a Architecture) {
	const h = 1e-6
	m, rng := newModel[float64](t, a), newRNG(5)
	for _, rows := range []int{1, 5, rowBlockSize + 3} {
		if rows > 5 && a.ParameterCount() > 100 {
			continue // Skip wide models, for which finite differences would take seconds.
		}
		b := randomSamples[float64](a, rows, rng).All()
		w := randomVector[float64](a.ParameterCount(), 0.5, rng)
		// Fill grad with other values, to check that the model overwrites every element.
		grad := randomVector[float64](len(w), 1, rng)
		m.Gradient(grad, w, b)
		for i, v := range w {
			w[i] = v + h
			up := m.Risk(w, b)
			w[i] = v - h
			down := m.Risk(w, b)
			w[i] = v
			if want := (up - down) / (2 * h); !(math.Abs(grad[i]-want) <= 1e-6*(1+math.Abs(want))) {
				t.Errorf("%d rows: gradient[%d] = %v, differences say %v", rows, i, grad[i], want)
			}
		}
	}
}

// meansRows checks that the risk of a batch is the mean of the risks of its rows, and that Gradient returns the same
// risk.
func meansRows(t *testing.T, a Architecture) {
	m, rng := newModel[float64](t, a), newRNG(6)
	for _, rows := range sizes {
		s, w := randomSamples[float64](a, rows, rng), randomVector[float64](a.ParameterCount(), 0.5, rng)
		risk, sum := m.Risk(w, s.All()), 0.0
		for i := range rows {
			x, y := s.Row(i)
			sum += m.Risk(w, Batch[float64]{X: x, Y: []float64{y}})
		}
		compare(t, fmt.Sprintf("risk of %d rows", rows), []float64{risk}, []float64{sum / float64(rows)}, 1e-13)
		with := m.Gradient(make([]float64, len(w)), w, s.All())
		compare(t, fmt.Sprintf("risk of %d rows with the gradient", rows), []float64{with}, []float64{risk}, 1e-13)
	}
	if risk := m.Risk(make([]float64, a.ParameterCount()), Batch[float64]{}); !math.IsNaN(risk) {
		t.Errorf("the risk of no rows is %v", risk)
	}
}

// addsBlocks checks that Backward returns the risk of a block, and that AddGradient adds the scaled gradient to any
// vector, including the parameter vector itself.
func addsBlocks[T Float](t *testing.T, a Architecture) {
	o, rng, tolerance := newObjective[T](a), newRNG(7), 1e-12
	if T(1)+T(1e-9) == 1 {
		tolerance = 1e-4
	}
	for _, rows := range []int{1, 2, 7, rowBlockSize} {
		b, w := randomSamples[T](a, rows, rng).All(), randomVector[T](a.ParameterCount(), 0.5, rng)
		risk := o.Backward(w, b)
		if want := o.AddRowRisks(0, w, b); risk != want || risk != o.Backward(w, b) {
			t.Errorf("%d rows: risk %v, going backward %v", rows, want, risk)
		}
		grad, dst := make([]T, len(w)), slices.Clone(w)
		o.AddGradient(grad, b, 1)
		o.Backward(dst, b)
		o.AddGradient(dst, b, -0.25) // Add the gradient to the parameter vector itself, as a local step does.
		for i := range w {
			w[i] -= 0.25 * grad[i]
		}
		compare(t, fmt.Sprintf("%d rows: step", rows), dst, w, tolerance)
	}
}

// scoresRows checks that the risk in a score equals the model's risk, and that the other values of the score lie
// between 0 and 1.
func scoresRows(t *testing.T, a Architecture) {
	m, rng := newModel[float64](t, a), newRNG(8)
	s, w := randomSamples[float64](a, 2*rowBlockSize+5, rng), randomVector[float64](a.ParameterCount(), 0.5, rng)
	score := m.Score(w, s)
	compare(t, "risk", []float64{score.Risk}, []float64{m.Risk(w, s.All())}, 1e-13)
	if score.Samples != s.Len() || score.R2 > 1 || score.Accuracy < 0 || score.Accuracy > 1 {
		t.Errorf("score %+v", score)
	}
	checkScore(t, m.Score(w, NewSamples[float64](a.Inputs, nil, nil)), Score{Risk: math.NaN(), R2: math.NaN(),
		Accuracy: math.NaN()})
}

// keepsLabels checks that MapLabels does not change targets that already have the form of the loss, and that it rejects
// non-finite targets.
func keepsLabels(t *testing.T, a Architecture) {
	s := randomSamples[float64](a, 20, newRNG(9))
	before := slices.Clone(s.All().Y)
	if _, err := s.MapLabels(a, LabelHistory{}); err != nil || !slices.Equal(before, s.All().Y) {
		t.Errorf("labels %v become %v, error %v", before, s.All().Y, err)
	}
	s.All().Y[7] = math.Inf(1)
	if _, err := s.MapLabels(a, LabelHistory{}); err == nil || !strings.Contains(err.Error(), "row 8") {
		t.Errorf("an infinite label: error %v", err)
	}
}

// showsNaN checks that a NaN parameter makes the risk NaN, even if the parameter belongs to a unit that is inactive or
// saturated.
func showsNaN(t *testing.T, a Architecture) {
	m, rng := newModel[float32](t, a), newRNG(10)
	b, w := randomSamples[float32](a, 3, rng).All(), randomVector[float32](a.ParameterCount(), 1, rng)
	for i, v := range w {
		w[i] = float32(math.NaN())
		if risk := m.Risk(w, b); !math.IsNaN(risk) {
			t.Errorf("with parameter %d NaN the risk is %v", i, risk)
		}
		w[i] = v
	}
}

// allocatesNothing checks that processing a block allocates no memory if a block of the same size was processed before.
func allocatesNothing(t *testing.T, a Architecture) {
	m, rng := newModel[float32](t, a), newRNG(11)
	b, w := randomSamples[float32](a, rowBlockSize+2, rng).All(), randomVector[float32](a.ParameterCount(), 1, rng)
	grad := make([]float32, len(w))
	if n := testing.AllocsPerRun(3, func() { m.Risk(w, b); m.Gradient(grad, w, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// changesUnits checks that converting a model with biases to another standardisation does not change the model's
// quality.
func changesUnits(t *testing.T, a Architecture) {
	rng, n := newRNG(12), a.Inputs+1
	from, to := Standardization{Mean: make([]float64, n), Scale: make([]float64, n)}, Standardization{}
	for i := range n {
		from.Mean[i], from.Scale[i] = rng.NormFloat64(), math.Exp(rng.NormFloat64())
		to.Mean, to.Scale = append(to.Mean, rng.NormFloat64()), append(to.Scale, math.Exp(rng.NormFloat64()))
	}
	from.keepLabelsUnscaled(a.Risk)
	to.keepLabelsUnscaled(a.Risk)
	alikeInChannels(a, from, to)
	// Skip autoencoders, whose risk is in the units of the features: see TestAutoencoderKeepsRows.
	if !a.HasTarget() {
		return
	}
	a.Ridge = 0 // Remove the ridge penalty, since it depends on the units of the parameters.
	m, w := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng)
	same := slices.Clone(w)
	if err := m.RestandardizeParameters(same, from, from); err != nil || !slices.Equal(same, w) {
		t.Errorf("the units stay, and the model changes; error %v", err)
	}
	raw := randomSamples[float64](a, 30, rng)
	score := func(st Standardization, w []float64) Score {
		s := NewSamples(a.Inputs, slices.Clone(raw.x), slices.Clone(raw.y))
		if err := s.Standardize(st); err != nil {
			t.Fatal(err)
		}
		m.SetReportedRiskUnits(st)
		return m.Score(w, s)
	}
	before := score(from, w)
	if err := m.RestandardizeParameters(w, from, to); (err == nil) != a.HasBias {
		t.Fatalf("bias %v: error %v", a.HasBias, err)
	}
	if after := score(to,
		w); a.HasBias && !(math.Abs(after.R2-before.R2) <= 1e-9 || after.Accuracy == before.Accuracy) {
		t.Errorf("score %+v becomes %+v", before, after)
	} else if a.HasBias && a.Risk != spec.LossHuber && math.Abs(after.Risk-before.Risk) > 1e-9*before.Risk {
		t.Errorf("in the units of the data, the risk %v becomes %v", before.Risk, after.Risk)
	}
}

// TestKindsInDocs checks that docs/ALGORITHMS.md contains a line for each kind of model.
func TestKindsInDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/ALGORITHMS.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind := range objectiveConstructorByKind[float64]() {
		if !strings.Contains(string(text), fmt.Sprintf("\n| `%s` |", kind)) {
			t.Errorf("docs/ALGORITHMS.md has no line for the kind %s", kind)
		}
	}
}

// TestRiskTakesFewRowsAtOnce checks that the activations of a wide layer need less memory than the parameters. The risk
// must be bitwise identical to the risk that results from evaluating one row at a time.
func TestRiskTakesFewRowsAtOnce(t *testing.T) {
	rng := newRNG(6)
	for _, bias := range []bool{false, true} {
		a := Architecture{Kind: spec.ModelMLP, Inputs: 1, Outputs: 1, HiddenUnits: []int{40000}, HasBias: bias,
			Activation: spec.ActivationTanh, Risk: spec.LossSquared}
		m := newModel[float32](t, a)
		s, w := randomSamples[float32](a, 20, rng), randomVector[float32](a.ParameterCount(), 0.01, rng)
		one := 0.0
		for k := range 20 {
			one = m.objective.AddRowRisks(one, w, s.All().RowRange(k, 1))
		}
		if risk := m.Risk(w, s.All()); risk != one/20 {
			t.Errorf("risk %v, row by row %v", risk, one/20)
		}
		if risk := m.Score(w, s).Risk; risk != one/20 {
			t.Errorf("score's risk %v, row by row %v", risk, one/20)
		}
		n := m.objective.(*network[float32])
		if len(n.layerActivations[0]) > a.ParameterCount() || n.layerDeltas[0] != nil {
			t.Errorf("%d activations and %d derivatives for %d parameters", len(n.layerActivations[0]),
				len(n.layerDeltas[0]), a.ParameterCount())
		}
	}
}
