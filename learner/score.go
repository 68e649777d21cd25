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

// Evaluate scores w on all of s. Logistic predicts +1 for an output above 0; Softmax predicts the class with the
// largest output, the first of equals. Without samples everything is NaN.
func Evaluate[T Float](m *Model[T], w []T, s *Samples[T]) Score {
	all := s.All()
	m.check(w, all)
	outputs := m.arch.Outputs
	var risk, sse, hits float64
	for from := 0; from < s.Len(); from += blockRows {
		block := m.block(all, from)
		z := m.forward(w, block.X, len(block.Y))
		for i, y := range block.Y {
			out := z[i*outputs:][:outputs]
			risk += sampleRisk(m.arch.Risk, nil, out, y)
			miss := float64(out[0]) - float64(y)
			sse += float64(miss * miss)
			if predicted(m.arch.Risk, out) == y {
				hits++
			}
		}
	}
	n := float64(s.Len())
	score := Score{Risk: risk/n + m.ridge(w), R2: math.NaN(), Accuracy: math.NaN(), Samples: s.Len()}
	if !m.arch.Risk.Regression() {
		score.Accuracy = hits / n
	} else if sst := spread(s.y); sst > 0 {
		score.R2 = 1 - sse/sst
	}
	return score
}

// predicted is the label that outputs z speak for.
func predicted[T Float](risk spec.Risk, z []T) T {
	if risk != spec.RiskSoftmax {
		if z[0] > 0 {
			return 1
		}
		return -1
	}
	best := 0
	for c, v := range z {
		if v > z[best] {
			best = c
		}
	}
	return T(best)
}

// spread is the sum of squared differences from the mean.
func spread[T Float](y []T) float64 {
	mean := 0.0
	for _, v := range y {
		mean += float64(v)
	}
	mean /= float64(len(y))
	sum := 0.0
	for _, v := range y {
		sum += float64((float64(v) - mean) * (float64(v) - mean))
	}
	return sum
}
