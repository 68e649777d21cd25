package learner

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func smallAutoencoder(bias bool) Architecture {
	return Architecture{Kind: spec.ModelAutoencoder, Inputs: 4, HiddenUnits: []int{3, 2, 3}, Outputs: 1, HasBias: bias,
		Activation: spec.ActivationTanh, Risk: spec.LossSquared}
}

// TestAutoencoderIsARegressionOfItsRows compares the risk and the gradient of an autoencoder with the means over
// networks that each predict one feature, using the row of the last layer that belongs to this feature.
func TestAutoencoderIsARegressionOfItsRows(t *testing.T) {
	rng := newRNG(1)
	a := smallAutoencoder(true)
	m := newModel[float64](t, a)
	s, w := randomSamples[float64](a, 2*rowBlockSize+3, rng), randomVector[float64](a.ParameterCount(), 0.5, rng)
	grad, want, risk := make([]float64, len(w)), make([]float64, len(w)), 0.0
	is := m.Gradient(grad, w, s.All())
	one := a
	one.Kind = spec.ModelMLP
	below := one.ParameterCount() - (3 + 1) // number of parameters below the last layer of a network with one output
	for j := range a.Inputs {
		y := make([]float64, s.Len())
		for i := range y {
			x, _ := s.Row(i)
			y[i] = x[j]
		}
		last := below + 3*j
		v := append(slices.Clone(w[:below]), append(slices.Clone(w[last:last+3]), w[below+3*a.Inputs+j])...)
		g := make([]float64, len(v))
		risk += newModel[float64](t, one).Gradient(g, v, NewSamples(a.Inputs, s.All().X, y).All()) / 4
		for i, x := range g[:below] {
			want[i] += x / 4
		}
		for i, x := range g[below : below+3] {
			want[last+i] = x / 4
		}
		want[below+3*a.Inputs+j] = g[below+3] / 4
	}
	compare(t, "risk", []float64{is}, []float64{risk}, 1e-13)
	compare(t, "gradient", grad, want, 1e-12)
}

// TestAutoencoderPassesOverTargets checks that target values do not affect the risk, the score or the prediction, and
// that no target value is rejected.
func TestAutoencoderPassesOverTargets(t *testing.T) {
	rng := newRNG(2)
	a := smallAutoencoder(false)
	m, w := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng)
	s := randomSamples[float64](a, 50, rng)
	before, tally := m.Score(w, s), m.SumScores(w, s)
	for i := range s.y {
		s.y[i] = float64(i)
	}
	after := m.Score(w, s)
	if checkScore(t, after, before); !math.IsNaN(after.R2) || !math.IsNaN(after.Accuracy) {
		t.Errorf("score %+v", after)
	}
	if again := m.SumScores(w, s); fmt.Sprint(again) != fmt.Sprint(tally) || tally.TargetSum != 0 ||
		tally.TargetSquareSum != 0 {
		t.Errorf("tally %+v, was %+v", again, tally)
	}
	if half := tally.SSE / 2; math.Abs(half-tally.RiskSum) > 1e-12*half {
		t.Errorf("risks %v are not half the squared errors %v", tally.RiskSum, tally.SSE)
	}
	if _, err := s.MapLabels(a, LabelHistory{}); err != nil || s.y[7] != 0 {
		t.Errorf("a target is %v, error %v", s.y[7], err)
	}
}

// TestAutoencoderPredictsItsError checks that the predicted reconstruction error is given in standard deviations,
// whatever the standardisation of the target.
func TestAutoencoderPredictsItsError(t *testing.T) {
	a := Architecture{Kind: spec.ModelAutoencoder, Inputs: 2, HiddenUnits: []int{1}, Outputs: 1, Risk: spec.LossSquared,
		Activation: spec.ActivationIdentity}
	st := Standardization{Mean: []float64{10, -1, 5}, Scale: []float64{2, 0.5, 7}}
	p, err := NewPredictor(a, st, []float64{1, 0, 1, 0})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Predict([]float64{14, 0.5}).Value, 3/math.Sqrt2; math.Abs(got-want) > 1e-15 {
		t.Errorf("the error is %v, want %v", got, want)
	}
}

// TestAutoencoderKeepsRows checks that converting the parameters to another standardisation does not change the
// reconstruction in the units of the data.
func TestAutoencoderKeepsRows(t *testing.T) {
	for _, bias := range []bool{false, true} {
		rng, a := newRNG(3), smallAutoencoder(bias)
		n := a.Inputs + 1
		from := Standardization{Mean: make([]float64, n), Scale: make([]float64, n)}
		to := Standardization{Mean: make([]float64, n), Scale: make([]float64, n)}
		for i := range n {
			from.Mean[i], from.Scale[i] = rng.NormFloat64(), math.Exp(rng.NormFloat64())
			to.Mean[i], to.Scale[i] = rng.NormFloat64(), math.Exp(rng.NormFloat64())
		}
		m, w, row := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng), []float64{0.3, -2,
			1, 0.7}
		back := func(st Standardization) []float64 {
			x := slices.Clone(row)
			standardizeRowFeatures(st, x)
			of := m.objective.(*autoencoder[float64]).network
			z := slices.Clone(of.forward(w, Batch[float64]{X: x, Y: []float64{0}}))
			for j := range z {
				z[j] = z[j]*st.Scale[j] + st.Mean[j]
			}
			return z
		}
		before := back(from)
		if err := m.RestandardizeParameters(w, from, to); (err == nil) != bias {
			t.Errorf("bias %v: error %v", bias, err)
		}
		if bias {
			compare(t, "the row", back(to), before, 1e-12)
		}
	}
}

// TestAutoencoderWants checks that an autoencoder without hidden layers, or with another loss, is rejected.
func TestAutoencoderWants(t *testing.T) {
	for _, edit := range []func(*Architecture){
		func(a *Architecture) { a.HiddenUnits = nil },
		func(a *Architecture) { a.Risk, a.HuberDelta = spec.LossHuber, 1 },
	} {
		a := smallAutoencoder(true)
		edit(&a)
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), "an autoencoder requires hidden layers") {
			t.Errorf("%+v: error %v", a, err)
		}
	}
}
