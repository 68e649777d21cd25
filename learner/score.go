package learner

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// Score is how well parameters do on samples. A score that does not apply to the risk is NaN.
type Score struct {
	Risk float64 // as Model.Risk: the mean, ridge included
	// of a regression: 1 − SSE/SST about the mean target of these samples; NaN if the targets do not vary
	R2       float64
	Accuracy float64 // logistic and softmax: the share of samples whose class is the predicted one
	Samples  int
}

// score is the score of a model with outputs, which forward returns for so many rows at once. Without samples
// everything is NaN.
func score[T Float](loss Loss[T], of spec.Risk, s *Samples[T], rows int, forward func(b Batch[T]) []T) Score {
	var risk, sse, hits float64
	all := s.All()
	for from := 0; from < s.Len(); from += rows {
		block := all.Part(from, rows)
		z := forward(block)
		outputs := len(z) / len(block.Y)
		for i, y := range block.Y {
			out := z[i*outputs:][:outputs]
			risk += loss.Risk(nil, out, y)
			miss := float64(out[0]) - float64(y)
			sse += float64(miss * miss)
			if loss.Predict(out) == y {
				hits++
			}
		}
	}
	n := float64(s.Len())
	score := Score{Risk: risk / n, R2: math.NaN(), Accuracy: math.NaN(), Samples: s.Len()}
	if !of.Regression() {
		score.Accuracy = hits / n
	} else if sst := spread(all); sst > 0 {
		score.R2 = 1 - sse/sst
	}
	return score
}

// spread is the sum of the targets' squared differences from their mean.
func spread[T Float](all Batch[T]) float64 {
	mean, sum, n := 0.0, 0.0, all.Len()
	for from := 0; from < n; from += blockRows {
		for _, v := range all.block(from).Y {
			mean += float64(v)
		}
	}
	mean /= float64(n)
	for from := 0; from < n; from += blockRows {
		for _, v := range all.block(from).Y {
			sum += float64((float64(v) - mean) * (float64(v) - mean))
		}
	}
	return sum
}
