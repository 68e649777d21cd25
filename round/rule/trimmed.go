package rule

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TrimmedMean is the coordinate-wise trimmed mean (Yin et al. 2018, Definition 2): of the n values of a coordinate the
// ⌊βn⌋ smallest and the ⌊βn⌋ largest are cut, and the mean of the others is taken. An agent that was drawn twice counts
// twice. Weights p_k play no part.
const TrimmedMean = "trimmed_mean"

type trimmedMean[T wire.Float] struct{ trim float64 }

func newTrimmedMean[T wire.Float](c Config) Rule[T] { return trimmedMean[T]{c.Trim} }

func checkTrim(c Config, k *spec.Check) {
	if c.Rule != TrimmedMean {
		k.Need(c.Trim == 0 || c.Trim == DefaultConfig().Trim, "trim", "is %v; it goes with the rule %s only", c.Trim,
			TrimmedMean)
		return
	}
	k.Need(c.Trim >= 0 && c.Trim < 0.5, "trim", "must be at least 0 and below 0.5, is %v", c.Trim)
}

func warnTrim(c Config, draws int) string {
	if cut(c.Trim, draws) > 0 {
		return ""
	}
	return fmt.Sprintf("%s cuts nothing: aggregation.trim is %v, which is less than one of %d updates; raise "+
		"aggregation.trim or participants", TrimmedMean, c.Trim, draws)
}

// cut is ⌊βn⌋, how many of n values are cut at each end. A product that lies 10⁻⁹ below a whole number is that number:
// 0.29·100 is 29.
func cut(trim float64, n int) int { return int(float64(trim*float64(n)) + 1e-9) }

func (trimmedMean[T]) Passes() int { return 2 }

// Fold implements Rule, in n blocks of columns that hold a million elements together.
func (r trimmedMean[T]) Fold(dst []float64, s Set[T]) error {
	n := s.Draws()
	cut := cut(r.trim, n)
	if err := enough(TrimmedMean, n, 2*cut+1); err != nil {
		return err
	}
	values := make([]T, 0, n)
	return columns(s.Source, len(s.Shares), len(dst), func(j int, column func(k int) T) {
		values = values[:0]
		for k, u := range s.Shares {
			for range u.Times {
				values = append(values, column(k))
			}
		}
		slices.Sort(values)
		sum := 0.0
		for _, x := range values[cut : n-cut] {
			sum += float64(x)
		}
		dst[j] = float64(s.Scale * float64(sum/float64(n-2*cut)))
	})
}
