package learner

import "math"

// Score is how well parameters do on samples. A score that does not apply to the risk is NaN.
type Score struct {
	Risk float64 // as Model.Risk: the mean, ridge included
	// of a regression: 1 − SSE/SST about the mean target of these samples; NaN if the targets do not vary, or there are
	// none
	R2       float64
	Accuracy float64 // logistic and softmax: the share of samples whose class is the predicted one
	Samples  int
}

// scoreFromSums is the score that a tally of samples amounts to. Without samples everything is NaN.
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

// totalSumOfSquares is the sum of the targets' squared differences from their mean.
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
