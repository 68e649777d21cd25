package learner

import "math"

// ResidualBins is the number of bins of a histogram of residuals: see [ResidualBinIndex].
const ResidualBins = 64

// MaxConfusionClasses is the number of classes up to which a tally says which were taken for which.
const MaxConfusionClasses = 64

// ScoreSums is how well parameters do on samples, as sums: those of several devices add up to that of all their
// samples.
type ScoreSums struct {
	Samples int
	RiskSum float64 // Σ Q, without the ridge
	// Of a regression, in the units of the targets that were trained on: Σ (z − y)², Σ y and Σ y². Residuals counts
	// |z − y| by [ResidualBinIndex].
	SSE, TargetSum, TargetSquareSum float64
	ResidualHistogram               []uint32
	// Of classes: the samples whose class is the predicted one, and [actual,predicted], for up to MaxConfusionClasses
	// classes.
	CorrectSamples  int
	ConfusionMatrix []uint32
}

// ResidualBinIndex is the place of a residual: 0 for |r| < 2^−9.75, then four bins for each factor of two, and the last
// one for 2^5.75 and more. A residual that is no number has the last.
func ResidualBinIndex(r float64) int {
	r = math.Abs(r)
	switch i := math.Floor(4*math.Log2(r)) + 40; {
	case i >= ResidualBins-1 || math.IsNaN(r):
		return ResidualBins - 1
	case i > 0:
		return int(i)
	}
	return 0
}

// ResidualBinUpperEnd is the upper end of a bin: no residual in it, or in one before it, is larger. That of the last
// one is +Inf.
func ResidualBinUpperEnd(i int) float64 {
	if i >= ResidualBins-1 {
		return math.Inf(1)
	}
	return math.Exp2(float64(i-39) / 4)
}

// tallyScores is the tally of a model with outputs, which forward returns for so many rows at once.
func tallyScores[T Float](loss Loss[T], s *Samples[T], rows int, forward func(b Batch[T]) []T) ScoreSums {
	t, all, classes := ScoreSums{Samples: s.Len()}, s.All(), 0
	for from := 0; from < s.Len(); from += rows {
		block := all.RowRange(from, rows)
		z := forward(block)
		outputs := len(z) / len(block.Y)
		if from == 0 {
			classes = len(loss.ClassProbabilities(nil, z[:outputs]))
			t.allocateCounts(classes)
		}
		for i, y := range block.Y {
			out := z[i*outputs:][:outputs]
			t.RiskSum += loss.Risk(nil, out, y)
			if classes == 0 {
				t.addResidual(float64(loss.Predict(out))-float64(y), float64(y))
			} else {
				t.countClassification(classes, classOfLabel(outputs, y), classOfLabel(outputs, loss.Predict(out)))
			}
		}
	}
	return t
}

// allocateCounts makes room for the counts; a regression has no classes.
func (t *ScoreSums) allocateCounts(classes int) {
	switch {
	case classes == 0:
		t.ResidualHistogram = make([]uint32, ResidualBins)
	case classes <= MaxConfusionClasses:
		t.ConfusionMatrix = make([]uint32, classes*classes)
	}
}

func (t *ScoreSums) addResidual(miss, y float64) {
	t.SSE += float64(miss * miss)
	t.TargetSum += y
	t.TargetSquareSum += float64(y * y)
	t.ResidualHistogram[ResidualBinIndex(miss)]++
}

func (t *ScoreSums) countClassification(classes, actual, predicted int) {
	if actual == predicted {
		t.CorrectSamples++
	}
	if t.ConfusionMatrix != nil {
		t.ConfusionMatrix[actual*classes+predicted]++
	}
}

// classOfLabel is the class that a label stands for: −1 and 1 are 0 and 1 where there is one output.
func classOfLabel[T Float](outputs int, label T) int {
	if outputs == 1 {
		return (int(label) + 1) / 2
	}
	return int(label)
}
