package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestDrawIsUniformAndWhole(t *testing.T) {
	const rows, draws = 5, 20000
	x, y := make([]float32, 2*rows), make([]float32, rows)
	for i := range rows {
		x[2*i], x[2*i+1], y[i] = float32(10*i), float32(10*i+1), float32(i)
	}
	s := NewSamples(2, x, y)
	var b Batch[float32]
	s.DrawBatch(&b, draws, newRNG(20))
	count := make([]float64, rows)
	for i, label := range b.Y {
		if b.X[2*i] != 10*label || b.X[2*i+1] != 10*label+1 {
			t.Fatalf("draw %d: target %v with features %v", i, label, b.X[2*i:2*i+2])
		}
		count[int(label)]++
	}
	for i, n := range count {
		if math.Abs(n-draws/rows) > 5*math.Sqrt(draws/rows) {
			t.Errorf("row %d was drawn %v times of %d", i, n, draws)
		}
	}
	first := &b.X[0]
	s.DrawBatch(&b, 3, newRNG(21))
	if len(b.X) != 6 || len(b.Y) != 3 || &b.X[0] != first {
		t.Errorf("a smaller draw has %d features and %d targets, in the same memory: %v", len(b.X), len(b.Y),
			&b.X[0] == first)
	}
	b.X[0] = -1
	if x[0] != 0 || s.Len() != rows || s.FeatureCount() != 2 {
		t.Errorf("a draw is not a copy, or Len %d or Inputs %d is wrong", s.Len(), s.FeatureCount())
	}
}

// TestFirstAndAfter checks that FirstSamples and SkipFirstSamples together divide the samples correctly at every
// position.
func TestFirstAndAfter(t *testing.T) {
	s := NewSamples(2, []float32{1, 2, 3, 4, 5, 6}, []float32{7, 8, 9})
	for n, want := range []int{0, 1, 2, 3, 3, 3} {
		a, b := s.FirstSamples(n), s.SkipFirstSamples(n)
		if a.Len() != want || b.Len() != 3-want || a.FeatureCount() != 2 || b.FeatureCount() != 2 {
			t.Errorf("%d: %d and %d samples", n, a.Len(), b.Len())
			continue
		}
		for i := range 3 {
			part, at := a, i
			if i >= want {
				part, at = b, i-want
			}
			if x, y := part.Row(at); x[0] != float32(1+2*i) || x[1] != float32(2+2*i) || y != float32(7+i) {
				t.Errorf("%d: sample %d is %v, %v", n, i, x, y)
			}
		}
	}
}

func TestMapLabels(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		risk   spec.LossKind
		labels []float64
		want   []float64
		err    string
	}{
		{spec.LossSquared, []float64{3.5, -2}, []float64{3.5, -2}, ""},
		{spec.LossSquared, []float64{3.5, nan}, nil, "label NaN in row 2 is not finite"},
		{spec.LossLogistic, []float64{0, 1, 0}, []float64{-1, 1, -1}, ""},
		{spec.LossLogistic, []float64{-1, 1}, []float64{-1, 1}, ""},
		{spec.LossLogistic, []float64{1, 1}, []float64{1, 1}, ""},
		{spec.LossLogistic, []float64{0, 1, 2}, nil, "label 2 in row 3: the logistic risk requires the labels 0 and " +
			"1, or -1 and 1"},
		{spec.LossLogistic, []float64{1, 0, -1}, nil,
			"label 0 in row 2 and -1 in row 3: the logistic risk requires the labels 0 and 1, or -1 and 1"},
		{spec.LossLogistic, []float64{-1, 0}, nil,
			"label -1 in row 1 and 0 in row 2: the logistic risk requires the labels 0 and 1, or -1 and 1"},
		{spec.LossSoftmax, []float64{0, 2, 1}, []float64{0, 2, 1}, ""},
		{spec.LossSoftmax, []float64{0, 3}, nil, "label 3 in row 2: the softmax risk requires whole numbers from 0 " +
			"to 2"},
		{spec.LossSoftmax, []float64{-1}, nil, "label -1 in row 1: the softmax risk requires whole numbers from 0 to " +
			"2"},
		{spec.LossSoftmax, []float64{1.5}, nil, "label 1.5 in row 1: the softmax risk requires whole numbers from 0 " +
			"to 2"},
	} {
		given := append([]float64(nil), test.labels...)
		s := NewSamples(1, make([]float64, len(given)), given)
		_, err := s.MapLabels(Architecture{Risk: test.risk, Outputs: 3}, LabelHistory{})
		if test.err == "" && err == nil {
			compare(t, "labels", s.All().Y, test.want, 0)
			continue
		}
		if err == nil || err.Error() != test.err {
			t.Errorf("%v %v: got %v, want %q", test.risk, test.labels, err, test.err)
		}
		for i, y := range s.All().Y {
			if math.Float64bits(y) != math.Float64bits(test.labels[i]) {
				t.Errorf("%v %v: refused, yet changed to %v", test.risk, test.labels, s.All().Y)
			}
		}
	}
}
