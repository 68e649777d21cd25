package learner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestPredictor checks that predictions from rows in the units of the data are bitwise identical to the model's
// predictions on standardised rows. Predictions of a regression must be converted to the units of the data.
func TestPredictor(t *testing.T) {
	for _, a := range []Architecture{
		{Inputs: 3, Outputs: 1, Risk: spec.LossSquared, HasBias: true},
		{Inputs: 3, Outputs: 1, Risk: spec.LossHuber, HuberDelta: 1, HiddenUnits: []int{4},
			Activation: spec.ActivationTanh},
		{Inputs: 3, Outputs: 1, Risk: spec.LossLogistic, HasBias: true},
		{Inputs: 3, Outputs: 4, Risk: spec.LossSoftmax, HasBias: true},
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		st := Standardization{Mean: []float64{5, 0, -2, 100}, Scale: []float64{3, 0.5, 1, 40}, Clip: 1.25}
		if !a.Risk.StandardizesTarget() {
			st.Mean[3], st.Scale[3] = 0, 1
		}
		w := make([]float32, a.ParameterCount())
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		var x, y []float32
		for range 40 {
			x = append(x, float32(5+6*rng.NormFloat64()), float32(rng.NormFloat64()), float32(-2+rng.NormFloat64()))
			y = append(y, float32(rng.IntN(a.Outputs+1)%max(2, a.Outputs)))
		}
		raw, labels := slices.Clone(x), slices.Clone(y)
		p, err := NewPredictor(a, st, w)
		if err != nil {
			t.Fatal(err)
		}
		s := NewSamples(3, x, y)
		if _, err := s.MapLabels(a, LabelHistory{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Standardize(st); err != nil {
			t.Fatal(err)
		}
		m, err := NewModel[float32](a)
		if err != nil {
			t.Fatal(err)
		}
		hits := 0.0
		for i := range s.Len() {
			got := p.Predict(raw[3*i:][:3])
			row, _ := s.Row(i)
			if a.Risk.IsRegression() {
				out := m.objective.RowOutputs(w, Batch[float32]{X: row, Y: y[:1]})
				if want := float64(out[0])*40 + 100; got.Value != want || len(got.ClassProbabilities) != 0 {
					t.Errorf("%s: row %d: %v, want %v", a.Risk, i, got, want)
				}
				continue
			}
			sum := 0.0
			for _, p := range got.ClassProbabilities {
				sum += p
			}
			if math.Abs(sum-1) > 1e-12 || got.ClassProbabilities[int(got.Value)] != slices.Max(got.ClassProbabilities) {
				t.Errorf("%s: row %d: %v", a.Risk, i, got)
			}
			if got.Value == float64(labels[i]) {
				hits++
			}
		}
		if want := m.Score(w, s).Accuracy; !a.Risk.IsRegression() && hits/float64(s.Len()) != want {
			t.Errorf("%s: accuracy %v, want %v", a.Risk, hits/float64(s.Len()), want)
		}
	}
}

func TestNewPredictorRefuses(t *testing.T) {
	a := Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared}
	for name, c := range map[string]struct {
		st Standardization
		w  []float32
	}{
		"parameters": {Standardization{}, make([]float32, 3)},
		"columns":    {Standardization{Mean: []float64{0, 0}, Scale: []float64{1, 1}}, make([]float32, 2)},
		"scale":      {Standardization{Mean: []float64{0, 0, 0}, Scale: []float64{1, 1, 0}}, make([]float32, 2)},
	} {
		if _, err := NewPredictor(a, c.st, c.w); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkPredict measures predictions of a model with 25 features.
func BenchmarkPredict(b *testing.B) {
	a := Architecture{Inputs: 25, Outputs: 1, Risk: spec.LossSquared, HasBias: true}
	st := Standardization{Mean: make([]float64, 26), Scale: slices.Repeat([]float64{2}, 26), Clip: 5}
	p, err := NewPredictor(a, st, make([]float32, a.ParameterCount()))
	if err != nil {
		b.Fatal(err)
	}
	row := make([]float32, 25)
	for b.Loop() {
		p.Predict(row)
	}
}
