package rule

import "github.com/fedmesh/fedmesh/wire"

// updateStripElements is how many elements of each update a rule takes at a time where it looks at updates whole: a
// whole number of units of each codec.
const updateStripElements = 1 << 15

// weightedRule is what those rules have in common whose D is a weighted mean of whole updates: D = Scale·Σ a_k v_k / A,
// by buckets. The part of v_k that counts is a factor of a_k.
type weightedRule[T wire.Float] struct {
	sum           *BucketedSum // its memory is kept from one fold to the next
	updateFactors []float64
	divisor       float64
}

func (*weightedRule[T]) StateVectorNames() []string { return nil }

// resetUpdateFactors makes room for the factors of a set, which are 0 then.
func (w *weightedRule[T]) resetUpdateFactors(s *UpdateSet[T], divisor float64) {
	w.updateFactors, w.divisor = make([]float64, len(s.Updates)), divisor
}

// AggregatePart implements Rule, in O(len(dst)) memory.
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

// squaredDistances returns ‖v_k − x‖² of each update as it counts, where of writes a part of x.
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
