package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// checkScore fails the test if two scores differ. It treats two NaN values as equal.
func checkScore(t *testing.T, got, want Score) {
	t.Helper()
	same := func(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-12 }
	if got.Samples != want.Samples || !same(got.Risk, want.Risk) || !same(got.R2, want.R2) ||
		!same(got.Accuracy, want.Accuracy) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestScore(t *testing.T) {
	nan := math.NaN()
	linear := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, Ridge: 0.5, Risk: spec.LossSquared})
	logistic := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossLogistic})
	softmax := newModel[float64](t, Architecture{Inputs: 1, Outputs: 3, Risk: spec.LossSoftmax})

	// The predictions are 2, 4, 6 for the targets 1, 5, 6. The sum of squared residuals SSE is 2, the total sum of
	// squares SST is 14, and the ridge penalty adds ¼·4.
	s := NewSamples(1, []float64{1, 2, 3}, []float64{1, 5, 6})
	checkScore(t, linear.Score([]float64{2}, s), Score{Risk: 1./3 + 1, R2: 1 - 2./14, Accuracy: nan, Samples: 3})
	flat := NewSamples(1, []float64{1, 2}, []float64{4, 4})
	checkScore(t, linear.Score([]float64{0}, flat), Score{Risk: 8, R2: nan, Accuracy: nan, Samples: 2})

	s = NewSamples(1, []float64{1, -1, 2, 0}, []float64{1, -1, -1, 1})
	checkScore(t, logistic.Score([]float64{0}, s), Score{Risk: math.Ln2, R2: nan, Accuracy: 0.5, Samples: 4})
	checkScore(t, logistic.Score([]float64{1e3}, s),
		Score{Risk: (2000 + math.Ln2) / 4, R2: nan, Accuracy: 0.5, Samples: 4})

	s = NewSamples(1, []float64{1, -1, 0}, []float64{2, 0, 1})
	checkScore(t, softmax.Score([]float64{-1e3, 0, 1e3}, s),
		Score{Risk: math.Log(3) / 3, R2: nan, Accuracy: 2. / 3, Samples: 3})

	none := NewSamples[float64](1, nil, nil)
	checkScore(t, linear.Score([]float64{2}, none), Score{Risk: nan, R2: nan, Accuracy: nan})
	checkScore(t, logistic.Score([]float64{2}, none), Score{Risk: nan, R2: nan, Accuracy: nan})
}

func TestScoreAgreesWithOutputs(t *testing.T) {
	for _, a := range architectures() {
		rng := newRNG(40)
		m := newModel[float32](t, a)
		s := randomSamples[float32](a, 2*rowBlockSize+5, rng)
		w := randomVector[float32](a.ParameterCount(), 0.5, rng)
		got := m.Score(w, s)
		want := Score{Risk: m.Risk(w, s.All()), R2: math.NaN(), Accuracy: math.NaN(), Samples: s.Len()}
		hits, sse, mean, sst := 0.0, 0.0, 0.0, 0.0
		for _, y := range s.All().Y {
			mean += float64(y) / float64(s.Len())
		}
		for i := range s.Len() {
			x, y := s.Row(i)
			z := outputs(m, w, x)
			if newLoss[float32](a).Predict(z) == y {
				hits++
			}
			sse += (float64(z[0]) - float64(y)) * (float64(z[0]) - float64(y))
			sst += (float64(y) - mean) * (float64(y) - mean)
		}
		if a.Risk.IsRegression() {
			want.R2 = 1 - sse/sst
		} else {
			want.Accuracy = hits / float64(s.Len())
		}
		checkScore(t, got, want)
	}
}

// TestTally checks that each sample is counted in the correct histogram bin or cell of the confusion matrix, and that
// the sums of two parts of the samples add up to the sums of all samples.
func TestTally(t *testing.T) {
	for _, a := range architectures() {
		rng := newRNG(41)
		m := newModel[float64](t, a)
		s := randomSamples[float64](a, 2*rowBlockSize+5, rng)
		w := randomVector[float64](a.ParameterCount(), 0.5, rng)
		got := m.SumScores(w, s)
		want := ScoreSums{Samples: s.Len()}
		classes := max(a.Outputs, 2)
		for i := range s.Len() {
			x, y := s.Row(i)
			z := outputs(m, w, x)
			want.RiskSum += m.objective.AddRowRisks(0, w, Batch[float64]{X: x, Y: []float64{y}})
			if a.Risk.IsRegression() {
				want.SSE += (z[0] - y) * (z[0] - y)
				want.TargetSum += y
				want.TargetSquareSum += y * y
				continue
			}
			predicted, actual := 0, int(y)
			for c, v := range z {
				if v > z[predicted] {
					predicted = c
				}
			}
			if a.Outputs == 1 {
				actual, predicted = 0, 0
				if y > 0 {
					actual = 1
				}
				if z[0] > 0 {
					predicted = 1
				}
			}
			if actual == predicted {
				want.CorrectSamples++
			}
			if got.ConfusionMatrix[actual*classes+predicted] == 0 {
				t.Fatalf("%+v: class %d was taken for %d, and it is not counted: %v", a, actual, predicted,
					got.ConfusionMatrix)
			}
			got.ConfusionMatrix[actual*classes+predicted]--
		}
		for _, n := range append(got.ConfusionMatrix, 0) {
			if n != 0 {
				t.Fatalf("%+v: counted too often: %v", a, got.ConfusionMatrix)
			}
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(b)) }
		if got.Samples != want.Samples || got.CorrectSamples != want.CorrectSamples || !near(got.RiskSum,
			want.RiskSum) ||
			!near(got.SSE, want.SSE) || !near(got.TargetSum, want.TargetSum) || !near(got.TargetSquareSum,
			want.TargetSquareSum) {
			t.Errorf("%+v: got %+v, want %+v", a, got, want)
		}
		counted := uint32(0)
		for _, n := range got.ResidualHistogram {
			counted += n
		}
		if a.Risk.IsRegression() != (counted == uint32(s.Len())) {
			t.Errorf("%+v: %d of %d residuals in bins", a, counted, s.Len())
		}
	}
}

func TestBins(t *testing.T) {
	for _, c := range []struct {
		r   float64
		bin int
	}{{0, 0}, {math.Exp2(-9.75) * 0.999, 0}, {math.Exp2(-9.75), 1}, {1, 40}, {-1, 40}, {1.18, 40}, {1.19, 41},
		{2, 44}, {math.Exp2(5.75), 63}, {1e9, 63}, {math.Inf(-1), 63}, {math.NaN(), 63}} {
		if got := ResidualBinIndex(c.r); got != c.bin {
			t.Errorf("%v is in bin %d, want %d", c.r, got, c.bin)
		}
	}
	for i := range ResidualBins - 1 {
		if end := ResidualBinUpperEnd(i); ResidualBinIndex(end*(1-1e-12)) != i ||
			ResidualBinIndex(end*(1+1e-12)) != i+1 {
			t.Errorf("bin %d ends at %v, which is in bin %d", i, end, ResidualBinIndex(end))
		}
	}
	if !math.IsInf(ResidualBinUpperEnd(ResidualBins-1), 1) {
		t.Error("the last bin has an end")
	}
}
