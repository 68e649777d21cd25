package learner

import "math"

// ResidualBins is the number of bins of a residual histogram: see [ResidualBinIndex].
const ResidualBins = 64

// MaxConfusionClasses is the maximum number of classes for which ScoreSums contains a confusion matrix.
const MaxConfusionClasses = 64

// ScoreSums describes the quality of a model on a set of samples by sums. The sums of several devices can be added to
// obtain the sums over all their samples.
type ScoreSums struct {
	Samples int
	RiskSum float64 // sum of the losses Q of all samples, without the ridge penalty
	// SSE, TargetSum and TargetSquareSum are the sums Σ (z − y)², Σ y and Σ y² over the samples of a regression, for
	// outputs z and targets y in the units of the trained targets. ResidualHistogram counts the values |z − y| by
	// [ResidualBinIndex].
	SSE, TargetSum, TargetSquareSum float64
	ResidualHistogram               []uint32
	// Counts of a classification: correctly classified samples, and the confusion matrix [actual,predicted] for up to
	// MaxConfusionClasses classes.
	CorrectSamples  int
	ConfusionMatrix []uint32
}

// ResidualBinIndex returns the histogram bin of a residual r: bin 0 for |r| < 2^−9.75, then four bins per factor of
// two. The last bin contains |r| ≥ 2^5.75 and NaN.
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

// ResidualBinUpperEnd returns the upper end of histogram bin i, or +Inf for the last bin.
func ResidualBinUpperEnd(i int) float64 {
	if i >= ResidualBins-1 {
		return math.Inf(1)
	}
	return math.Exp2(float64(i-39) / 4)
}

// tallyScores returns the score sums of a model. The function forward computes the outputs of a batch; tallyScores
// calls it with at most the given number of rows.
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

// allocateCounts allocates the histogram of residuals for a regression (0 classes), or the confusion matrix for a
// classification.
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

// classOfLabel returns the class of a label. With one output, the labels −1 and 1 are the classes 0 and 1.
func classOfLabel[T Float](outputs int, label T) int {
	if outputs == 1 {
		return (int(label) + 1) / 2
	}
	return int(label)
}
