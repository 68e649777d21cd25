package learner

import (
	"fmt"
	"math"
	"slices"
)

// softmaxLoss implements the cross-entropy loss ln Σ_c exp(z_c) − z_γ of the outputs z for the target class γ = 0 …
// C−1, where C is the number of classes.
type softmaxLoss[T Float] struct{}

func (softmaxLoss[T]) Risk(delta, z []T, y T) float64 {
	// Check the target before it is converted to an integer, since the conversion of NaN depends on the processor.
	if known := y >= 0 && y < T(len(z)); !known {
		panic(fmt.Sprintf("learner: label %v is invalid for %d classes: call Samples.MapLabels first", y, len(z)))
	}
	class := int(y)
	top := float64(z[0])
	for _, v := range z[1:] {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(float64(v) - top)
	}
	if delta != nil {
		for c, v := range z {
			delta[c] = T(math.Exp(float64(v)-top) / sum)
		}
		delta[class]--
	}
	// Subtract z[class] from top first, since adding the logarithm to a large top would lose precision.
	return math.Log(sum) + (top - float64(z[class]))
}

// LabelSet implements Loss.
func (softmaxLoss[T]) LabelSet(outputs int) LabelSet { return LabelSet{ClassCount: outputs} }

// MapLabels accepts the integers from 0 to outputs − 1.
func (softmaxLoss[T]) MapLabels(y []T, outputs int, seen *LabelHistory) error {
	for i, label := range y {
		if v := float64(label); !(v >= 0 && v < float64(outputs) && v == float64(int(v))) {
			return fmt.Errorf("label %v in row %d: the softmax risk requires whole numbers from 0 to %d", v,
				seen.rowCount+i+1, outputs-1)
		}
	}
	return nil
}

// Predict returns the class with the largest output, or the first such class if several outputs are equal.
func (softmaxLoss[T]) Predict(z []T) T {
	best := 0
	for c, v := range z {
		if v > z[best] {
			best = c
		}
	}
	return T(best)
}

// ClassProbabilities appends the probabilities of the classes 0 to outputs − 1 to dst.
func (softmaxLoss[T]) ClassProbabilities(dst []float64, z []T) []float64 {
	from, top, sum := len(dst), float64(slices.Max(z)), 0.0
	for _, v := range z {
		e := math.Exp(float64(v) - top)
		dst, sum = append(dst, e), sum+e
	}
	for c := range dst[from:] {
		dst[from+c] /= sum
	}
	return dst
}
