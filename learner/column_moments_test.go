package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestMomentsOfParts(t *testing.T) {
	a := Architecture{Inputs: 3, Outputs: 1, Risk: spec.LossSquared}
	rng := newRNG(30)
	whole := randomSamples[float32](a, 100, rng)
	b := whole.All()
	sum := ComputeColumnMoments(NewSamples(3, b.X[:3*30], b.Y[:30]))
	sum.mergeMoments(ComputeColumnMoments(NewSamples(3, b.X[3*30:], b.Y[30:])))
	want := ComputeColumnMoments(whole).Vector()
	compare(t, "sum of the parts", sum.Vector(), want, 1e-13)
	if want[0] != 100 || len(want) != 9 {
		t.Errorf("count %v, length %d; want 100 and 9", want[0], len(want))
	}
	read, err := ColumnMomentsFromVector(want)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "read back", read.Vector(), want, 0)
}

func TestMomentsVectorOrder(t *testing.T) {
	m := newColumnMoments(2)
	addRowToColumnMoments(m, []float64{1, 2}, 3)
	addRowToColumnMoments(m, []float64{4, 6}, 8)
	compare(t, "vector", m.Vector(), []float64{2, 2.5, 4, 5.5, 4.5, 8, 12.5}, 0)
}

func TestMomentsRefuseWhatNoDataHas(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want string
	}{
		{[]float64{2, 5, 9, 17, 45}, ""},
		{nil, "moments: vector has length 0, but must have length 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 17}, "moments: vector has length 3, but must have length 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 9, 17}, "moments: vector has length 4, but must have length 1+2m for m ≥ 2 columns"},
		{[]float64{2, 5, 9, 17, 45, 1}, "moments: vector has length 6, but must have length 1+2m for m ≥ 2 columns"},
		{[]float64{0, 0, 0, 0, 0}, "moments: the number of rows is 0, but must be at least 1"},
		{[]float64{2, 5, math.NaN(), 17, 45}, "moments: element 2 is NaN, but must be a finite number"},
		{[]float64{2, 5, 9, math.Inf(1), 45}, "moments: element 3 is +Inf, but must be a finite number"},
		{[]float64{2, 0, 9, -1, 45},
			"moments: column 0 has the sum of squared deviations -1, but must not be negative"},
	} {
		m, err := ColumnMomentsFromVector(test.v)
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
	// The columns are the values 1…5, a constant that float64 cannot represent exactly, and a column with an outlier.
	// The target values are 10 … 50.
	x := []float64{1, 0.1, 0, 2, 0.1, 0, 3, 0.1, 0, 4, 0.1, 0, 5, 0.1, 1000}
	y := []float64{10, 20, 30, 40, 50}
	s := NewSamples(3, append([]float64(nil), x...), append([]float64(nil), y...))
	st := ComputeColumnMoments(s).Standardization(spec.LossSquared, 1.5)
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
		compare(t, "target and back", []float64{st.RestoreTarget(v)}, []float64{y[i]}, 1e-14)
	}
}

func TestStandardizationLeavesLabels(t *testing.T) {
	for _, risk := range []spec.LossKind{spec.LossLogistic, spec.LossSoftmax} {
		s := NewSamples(1, []float64{1, 2, 3}, []float64{1, 1, 0})
		st := ComputeColumnMoments(s).Standardization(risk, 0)
		if err := s.Standardize(st); err != nil {
			t.Fatal(err)
		}
		compare(t, string(risk), s.All().Y, []float64{1, 1, 0}, 0)
		compare(t, "features without a clip", s.All().X, []float64{-math.Sqrt(1.5), 0, math.Sqrt(1.5)}, 1e-14)
	}
}

// TestLongConstantColumn checks that the rounding errors of many additions neither make a constant column appear to
// vary nor hide a real spread.
func TestLongConstantColumn(t *testing.T) {
	m := newColumnMoments(2)
	for i := range 300_000 {
		addRowToColumnMoments(m, []float64{0.1, 101325 + 10*float64(i%7)}, 0)
	}
	st := m.Standardization(spec.LossSquared, 6)
	compare(t, "scale", st.Scale, []float64{1, 20, 1}, 1e-3)
	if _, err := ColumnMomentsFromVector(m.Vector()); err != nil {
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
			"standardization: got 2 means and 1 scales, but need one of each per feature and for the target"},
		{Standardization{[]float64{0, math.NaN()}, good, 6},
			"standardization: mean of column 1 is NaN, but must be a finite number"},
		{Standardization{good, []float64{0, 1}, 6},
			"standardization: scale of column 0 is 0, but must be positive and finite"},
		{Standardization{good, good, -1}, "standardization: clip is -1, but must be finite and not negative"},
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
	if want := "standardization has 1 features, but the samples have 2"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestSpreadFarFromZero checks that a column is scaled by its spread even if its mean is far from 0, as long as float32
// can represent the spread. It tests one device, a few devices whose moments are summed, and many devices. A constant
// column must not be scaled.
func TestSpreadFarFromZero(t *testing.T) {
	for _, tt := range []struct {
		name         string
		mean, spread float64
		scaled       bool
	}{
		{"a latitude within 80 m", 52.52, 2.3e-4, true},
		{"a meter in Wh", 12_345_678, 250, true},
		{"seconds since 1970 within 6 hours", 1.7e9, 6000, true},
		{"a current of nanoamperes", 5e-10, 3e-10, true},
		{"a constant", 0.1, 0, false},
		{"a large constant", 16_777_217, 0, false},
	} {
		for _, devices := range []int{1, 3, 7} {
			var all []*ColumnMoments
			sum, n := 0.0, 0.0
			for k := range devices {
				x := make([]float32, 400)
				for i := range x {
					side := float64(1 - 2*(i%2))
					x[i] = float32(tt.mean + side*tt.spread*(1+float64(k)/1000))
					sum, n = sum+float64(x[i])-tt.mean, n+1
				}
				all = append(all, ComputeColumnMoments(NewSamples(1, x, make([]float32, len(x)))))
			}
			st, _ := combined(t, all)
			want := 1.0
			if tt.scaled {
				want = tt.spread
			}
			// Each value has a rounding error of up to half a step of float32.
			step := tt.mean / (1 << 23)
			if math.Abs(st.Scale[0]-want) > step+0.01*want || !tt.scaled && st.Scale[0] != 1 {
				t.Errorf("%s, %d devices: scale %v, want %v", tt.name, devices, st.Scale[0], want)
			}
			if math.Abs(st.Mean[0]-tt.mean-sum/n) > 1e-9*tt.mean && devices < minDevicesToOutvote {
				t.Errorf("%s, %d devices: mean %v, want %v", tt.name, devices, st.Mean[0], tt.mean+sum/n)
			}
		}
	}
}
