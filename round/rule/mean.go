package rule

import "github.com/fedmesh/fedmesh/wire"

// Mean is the weighted mean D = Scale·Σ f_k v_k / N (ch5 (5.11) in Δ form; lecture (14), (34)), by buckets: see [Sum].
const Mean = "mean"

type mean[T wire.Float] struct{}

func newMean[T wire.Float](Config) Rule[T] { return mean[T]{} }

// Fold implements Rule, in one pass and O(d) memory.
func (mean[T]) Fold(dst []float64, s Set[T]) error {
	sum := NewSum(len(dst))
	err := s.Each(func(k int, v []T) {
		u := s.Shares[k]
		Add(sum, u.Bucket, u.Factor, v)
	})
	sum.End(dst, s.Draws(), s.Scale)
	return err
}
