package rule

import "github.com/fedmesh/fedmesh/wire"

// Mean is the weighted mean D = Scale·Σ f_k v_k / N (ch5 (5.11) in Δ form; lecture (14), (34)), by buckets: see [Sum].
const Mean = "mean"

type mean[T wire.Float] struct{}

func newMean[T wire.Float](Config) Rule[T] { return mean[T]{} }

func (mean[T]) Passes() int { return 1 }

// Fold implements Rule, in O(d) memory.
func (mean[T]) Fold(dst []float64, s Set[T]) error {
	n := s.Draws()
	if err := enough(Mean, n, 1); err != nil {
		return err
	}
	sum := NewSum(len(dst))
	err := s.Each(func(k int, v []T) {
		u := s.Shares[k]
		Add(sum, u.Bucket, u.Factor, v)
	})
	sum.End(dst, n, s.Scale)
	return err
}
