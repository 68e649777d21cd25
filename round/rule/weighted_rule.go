package rule

import "github.com/fedmesh/fedmesh/wire"

// updateStripElements is the number of elements of each update that a rule reads at a time. The number is a multiple of
// every codec's block size.
const updateStripElements = 1 << 15

// weightedRule implements the rules whose result is a weighted mean of whole updates: D = Scale·Σ a_k v_k / A, computed
// as a [BucketedSum]. The factor a_k of update v_k includes clipping, and A is the divisor of the mean.
type weightedRule[T wire.Float] struct {
	sum           *BucketedSum // sum that is reused for the next aggregation
	updateFactors []float64
	divisor       float64
}

func (*weightedRule[T]) StateVectorNames() []string { return nil }

// resetUpdateFactors sets the factor of each update in a set to 0, and sets the divisor of the mean.
func (w *weightedRule[T]) resetUpdateFactors(s *UpdateSet[T], divisor float64) {
	w.updateFactors, w.divisor = make([]float64, len(s.Updates)), divisor
}

// AggregatePart implements Rule. It needs an amount of memory proportional to len(dst).
func (w *weightedRule[T]) AggregatePart(dst []float64, s *UpdateSet[T], from int) error {
	if w.sum == nil || w.sum.dimension != len(dst) {
		w.sum = NewBucketedSum(len(dst))
	}
	err := s.ForEachUpdate(from, from+len(dst), func(k int, v []T) {
		if u := &s.Updates[k]; w.updateFactors[k] != 0 {
			AddToBucketedSum(w.sum, u.Bucket, float64(w.updateFactors[k]*u.clipFactor()), v)
		}
	})
	w.sum.WriteMeanAndReset(dst, w.divisor, s.UpdateScale)
	return err
}

// squaredDistances returns the squared distance ‖v_k − x‖² of each clipped update v_k from a vector x. The function of
// writes the part of x that starts at the index from.
func squaredDistances[T wire.Float](s *UpdateSet[T], of func(x []float64, from int) error) ([]float64, error) {
	squares, d := make([]float64, len(s.Updates)), s.Len()
	x := make([]float64, min(updateStripElements, d))
	for from := 0; from < d; from += len(x) {
		x = x[:min(len(x), d-from)]
		if err := of(x, from); err != nil {
			return nil, err
		}
		err := s.ForEachUpdate(from, from+len(x), func(k int, v []T) {
			part, sum := s.Updates[k].clipFactor(), squares[k]
			for j, y := range v {
				far := float64(part*float64(y)) - x[j]
				sum += float64(far * far)
			}
			squares[k] = sum
		})
		if err != nil {
			return nil, err
		}
	}
	return squares, nil
}
