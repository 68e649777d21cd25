package learner

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestRestandardize checks that a restandardised model gives the same predictions in the units of the data.
func TestRestandardize(t *testing.T) {
	rng := newRNG(51)
	some := func(n int) (st Standardization) {
		for range n {
			st.Mean, st.Scale = append(st.Mean, 5*rng.NormFloat64()), append(st.Scale, math.Exp(2*rng.NormFloat64()))
		}
		return st
	}
	for _, a := range []Architecture{
		{Inputs: 3, Outputs: 1, HasBias: true, Risk: spec.LossSquared},
		{Inputs: 3, HiddenUnits: []int{4, 2}, Outputs: 1, HasBias: true, Activation: spec.ActivationTanh,
			Risk: spec.LossFullSquared},
		{Inputs: 2, Outputs: 1, HasBias: true, Risk: spec.LossLogistic},
		{Inputs: 4, HiddenUnits: []int{5}, Outputs: 3, HasBias: true, Activation: spec.ActivationReLU,
			Risk: spec.LossSoftmax},
	} {
		m, err := NewModel[float64](a)
		if err != nil {
			t.Fatal(err)
		}
		from, to := some(a.Inputs+1), some(a.Inputs+1)
		if !a.Risk.StandardizesTarget() {
			from.Mean[a.Inputs], from.Scale[a.Inputs], to.Mean[a.Inputs], to.Scale[a.Inputs] = 0, 1, 0, 1
		}
		before := make([]float64, a.ParameterCount())
		for i := range before {
			before[i] = rng.NormFloat64()
		}
		after := slices.Clone(before)
		if err := m.RestandardizeParameters(after, from, to); err != nil {
			t.Fatal(err)
		}
		predict := func(w []float64, st Standardization, raw []float64) (all []float64) {
			s := NewSamples(a.Inputs, slices.Clone(raw), []float64{1})
			if err := s.Standardize(st); err != nil {
				t.Fatal(err)
			}
			x, _ := s.Row(0)
			for _, z := range outputs(m, w, x) {
				if a.Risk.StandardizesTarget() {
					z = st.RestoreTarget(z)
				}
				all = append(all, z)
			}
			return all
		}
		for range 20 {
			raw := make([]float64, a.Inputs)
			for j := range raw {
				raw[j] = 10 * rng.NormFloat64()
			}
			compare(t, fmt.Sprintf("%+v", a), predict(after, to, raw), predict(before, from, raw), 1e-9)
		}
	}
}

func TestRestandardizeRefuses(t *testing.T) {
	m, err := NewModel[float32](Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossSquared})
	if err != nil {
		t.Fatal(err)
	}
	st := func(mean, scale float64) Standardization {
		return Standardization{Mean: []float64{mean, 0}, Scale: []float64{scale, 1}}
	}
	w := []float32{3}
	if err := m.RestandardizeParameters(w, st(1, 2), st(1, 4)); err != nil || w[0] != 6 {
		t.Errorf("other scales without biases: %v, %v", w, err)
	}
	if err := m.RestandardizeParameters(w, st(1, 4), st(2, 2)); !errors.Is(err, ErrNoBias) || w[0] != 3 {
		t.Errorf("other means without biases: %v, %v", w, err)
	}
	if err := m.RestandardizeParameters(w, st(0, 1), st(0, 1e39)); err == nil || errors.Is(err,
		ErrNoBias) || w[0] != 3 {
		t.Errorf("beyond float32: %v, %v", w, err)
	}
	if err := m.RestandardizeParameters(w, st(0, 1), Standardization{}); err == nil {
		t.Error("a standardisation of no columns is taken")
	}
}
