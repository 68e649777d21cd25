package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestMomentsOfParts(t *testing.T) {
	a := Architecture{Inputs: 3, Outputs: 1, Risk: spec.RiskSquared}
	rng := newRNG(30)
	whole := randomSamples[float32](a, 100, rng)
	b := whole.All()
	sum := MomentsOf(NewSamples(3, b.X[:3*30], b.Y[:30])).Vector()
	for i, v := range MomentsOf(NewSamples(3, b.X[3*30:], b.Y[30:])).Vector() {
		sum[i] += v
	}
	want := MomentsOf(whole).Vector()
	compare(t, "sum of the parts", sum, want, 1e-13)
	if want[0] != 100 || len(want) != 9 {
		t.Errorf("count %v, length %d; want 100 and 9", want[0], len(want))
	}
	read, err := MomentsFromVector(want)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "read back", read.Vector(), want, 0)
}

func TestMomentsVectorOrder(t *testing.T) {
	m := newMoments(2)
	addRow(m, []float64{1, 2}, 3)
	addRow(m, []float64{4, 5}, 6)
	compare(t, "vector", m.Vector(), []float64{2, 5, 7, 9, 17, 29, 45}, 0)
}

func TestMomentsRefuseWhatNoDataHas(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want string
	}{
		{[]float64{2, 5, 9, 17, 45}, ""},
		{[]float64{3, 0.3, 3, 0.03 * (1 - 1e-12), 3}, ""}, // constant columns, rounded the wrong way
		{nil, "moments: vector of length 0; it must be 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 17}, "moments: vector of length 3; it must be 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 9, 17}, "moments: vector of length 4; it must be 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 9, 17, 45, 1}, "moments: vector of length 6; it must be 1+2m for m ≥ 2 columns"},
		{[]float64{0, 0, 0, 0, 0}, "moments: 0 rows; at least 1"},
		{[]float64{2, 5, math.NaN(), 17, 45}, "moments: element 2 is NaN"},
		{[]float64{2, 5, 9, math.Inf(1), 45}, "moments: element 3 is +Inf"},
		{[]float64{2, 5, 9, 17, 40},
			"moments: column 1 has sum 9 and sum of squares 40 over 2 rows: no data has these"},
		{[]float64{2, 0, 9, -1, 45},
			"moments: column 0 has sum 0 and sum of squares -1 over 2 rows: no data has these"},
		{[]float64{1, 1e200, 9, 1e300, 81},
			"moments: column 0 has sum 1e+200 and sum of squares 1e+300 over 1 rows: no data has these"},
	} {
		m, err := MomentsFromVector(test.v)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want || (m == nil) != (err != nil) {
			t.Errorf("%v: got %q, want %q", test.v, got, test.want)
		}
	}
}

func TestStandardize(t *testing.T) {
	// Columns: 1…5 scaled, a constant that float64 cannot represent, an outlier; the target is 10 … 50.
	x := []float64{1, 0.1, 0, 2, 0.1, 0, 3, 0.1, 0, 4, 0.1, 0, 5, 0.1, 1000}
	y := []float64{10, 20, 30, 40, 50}
	s := NewSamples(3, append([]float64(nil), x...), append([]float64(nil), y...))
	st := MomentsOf(s).Standardization(spec.RiskSquared, 1.5)
	compare(t, "mean", st.Mean, []float64{3, 0.1, 200, 30}, 1e-15)
	compare(t, "scale", st.Scale, []float64{math.Sqrt2, 1, 400, 10 * math.Sqrt2}, 1e-12)
	if err := st.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.Standardize(st); err != nil {
		t.Fatal(err)
	}
	r := math.Sqrt2 / 2
	compare(t, "features", s.All().X, []float64{-2 * r, 0, -.5, -r, 0, -.5, 0, 0, -.5, r, 0, -.5, 2 * r, 0, 1.5}, 1e-12)
	compare(t, "target", s.All().Y, []float64{-2 * r, -r, 0, r, 2 * r}, 1e-12)
	for i, v := range s.All().Y {
		compare(t, "target and back", []float64{st.Target(v)}, []float64{y[i]}, 1e-14)
	}
}

func TestStandardizationLeavesLabels(t *testing.T) {
	for _, risk := range []spec.Risk{spec.RiskLogistic, spec.RiskSoftmax} {
		s := NewSamples(1, []float64{1, 2, 3}, []float64{1, 1, 0})
		st := MomentsOf(s).Standardization(risk, 0)
		if err := s.Standardize(st); err != nil {
			t.Fatal(err)
		}
		compare(t, string(risk), s.All().Y, []float64{1, 1, 0}, 0)
		compare(t, "features without a clip", s.All().X, []float64{-math.Sqrt(1.5), 0, math.Sqrt(1.5)}, 1e-14)
	}
}

// TestLongConstantColumn: the rounding of many additions must not pass for spread, nor drown a true one.
func TestLongConstantColumn(t *testing.T) {
	m := newMoments(2)
	for i := range 300_000 {
		addRow(m, []float64{0.1, 101325 + 10*float64(i%7)}, 0)
	}
	st := m.Standardization(spec.RiskSquared, 6)
	compare(t, "scale", st.Scale, []float64{1, 20, 1}, 1e-3)
	if _, err := MomentsFromVector(m.Vector()); err != nil {
		t.Error(err)
	}
}

func TestStandardizationRefuses(t *testing.T) {
	good := []float64{1, 1}
	for _, test := range []struct {
		st   Standardization
		want string
	}{
		{Standardization{good, good, 6}, ""},
		{Standardization{good, good[:1], 6},
			"standardization: 2 means and 1 scales; one of each per feature and the target"},
		{Standardization{[]float64{0, math.NaN()}, good, 6}, "standardization: mean of column 1 is NaN"},
		{Standardization{good, []float64{0, 1}, 6},
			"standardization: scale of column 0 is 0; it must be positive and finite"},
		{Standardization{good, good, -1}, "standardization: clip is -1; it must be finite and not negative"},
	} {
		got := ""
		if err := test.st.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %q, want %q", test.st, got, test.want)
		}
	}
	err := NewSamples(2, []float32{1, 2}, []float32{3}).Standardize(Standardization{good, good, 0})
	if want := "standardization of 1 features for samples of 2"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
