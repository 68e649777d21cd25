package learner

import "math"

// Score describes the quality of a model on a set of samples. A value that the loss does not define is NaN.
type Score struct {
	Risk float64 // mean risk including the ridge penalty, as returned by Model.Risk
	// R2 is the score R² = 1 − SSE/SST of a regression, where SSE and SST are the sums of squared residuals and of
	// squared deviations from the mean target. It is NaN if all targets are equal.
	R2       float64
	Accuracy float64 // share of correctly classified samples, for logistic and softmax losses
	Samples  int
}

// scoreFromSums returns the score that follows from score sums. Without samples all values are NaN.
func scoreFromSums[T Float](t ScoreSums, a Architecture, s *Samples[T]) Score {
	n := float64(t.Samples)
	score := Score{Risk: t.RiskSum / n, R2: math.NaN(), Accuracy: math.NaN(), Samples: t.Samples}
	if !a.Risk.IsRegression() {
		score.Accuracy = float64(t.CorrectSamples) / n
	} else if !a.HasTarget() {
		return score
	} else if sst := totalSumOfSquares(s.All()); sst > 0 {
		score.R2 = 1 - t.SSE/sst
	}
	return score
}

// totalSumOfSquares returns the sum of squared deviations of the targets from their mean.
func totalSumOfSquares[T Float](all Batch[T]) float64 {
	mean, sum, n := 0.0, 0.0, all.Len()
	for from := 0; from < n; from += rowBlockSize {
		for _, v := range all.rowBlock(from).Y {
			mean += float64(v)
		}
	}
	mean /= float64(n)
	for from := 0; from < n; from += rowBlockSize {
		for _, v := range all.rowBlock(from).Y {
			sum += float64((float64(v) - mean) * (float64(v) - mean))
		}
	}
	return sum
}
