package learner

import (
	"fmt"
	"math"
)

// logisticLoss implements the logistic loss ln(1 + exp(−γ z)) of the output z for the target γ = ±1 (lecture, equation
// (15)).
type logisticLoss[T Float] struct{}

func (logisticLoss[T]) Risk(delta, z []T, y T) float64 {
	margin := float64(y) * float64(z[0])
	e := math.Exp(-math.Abs(margin))
	if delta != nil {
		wrong := 1 / (1 + e) // probability of the class that is not the target
		if margin > 0 {
			wrong *= e
		}
		delta[0] = T(-float64(y) * wrong)
	}
	return max(-margin, 0) + math.Log1p(e)
}

// LabelSet implements Loss.
func (logisticLoss[T]) LabelSet(int) LabelSet { return LabelSet{IsBinary: true} }

// MapLabels implements Loss. It accepts either the labels 0 and 1, of which it converts 0 to −1, or the labels −1 and
// 1.
func (logisticLoss[T]) MapLabels(y []T, _ int, seen *LabelHistory) error {
	for i, v := range y {
		row, other := seen.rowCount+i+1, 0
		switch v {
		case 0:
			seen.lastZeroRow, other = row, seen.lastMinusOneRow
		case -1:
			seen.lastMinusOneRow, other = row, seen.lastZeroRow
		case 1:
		default:
			return fmt.Errorf("label %v in row %d: the logistic risk requires the labels 0 and 1, or -1 and 1",
				float64(v), row)
		}
		if other > 0 {
			return fmt.Errorf("label %v in row %d and %v in row %d: the logistic risk requires the labels 0 and 1, "+
				"or -1 and 1",
				-1-float64(v), other, float64(v), row)
		}
	}
	if seen.lastZeroRow > 0 {
		for i, v := range y {
			y[i] = 2*v - 1
		}
	}
	return nil
}

// Predict returns 1 for an output above 0, otherwise −1.
func (logisticLoss[T]) Predict(z []T) T {
	if z[0] > 0 {
		return 1
	}
	return -1
}

// ClassProbabilities appends the probabilities of the labels −1 and 1 to dst.
func (logisticLoss[T]) ClassProbabilities(dst []float64, z []T) []float64 {
	p := 1 / (1 + math.Exp(-float64(z[0])))
	return append(dst, 1-p, p)
}
