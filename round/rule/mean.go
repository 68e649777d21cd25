package rule

import "github.com/fedmesh/fedmesh/wire"

// Mean is the weighted mean D = Scale·Σ f_k v_k / N (ch5 (5.11) in Δ form; lecture (14), (34)), by buckets: see [Sum].
// f_k is the share's factor, times Most/‖v_k‖ where that is below 1.
const Mean = "mean"

// mean keeps the memory of its sum from one fold to the next.
type mean[T wire.Float] struct{ sum *Sum }

func newMean[T wire.Float](Config) Rule[T] { return &mean[T]{} }

func (*mean[T]) Passes() int { return 1 }

// Fold implements Rule, in O(d) memory.
func (m *mean[T]) Fold(dst []float64, s Set[T]) error {
	n := s.Draws()
	if err := enough(Mean, n, 1); err != nil {
		return err
	}
	if m.sum == nil || m.sum.d != len(dst) {
		m.sum = NewSum(len(dst))
	}
	err := s.Each(func(k int, v []T) {
		u := &s.Shares[k]
		Add(m.sum, u.Bucket, u.factor(), v)
	})
	m.sum.End(dst, n, s.Scale)
	return err
}
