package rule

import (
	"fmt"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TrimmedMean is the name of the rule of the coordinate-wise trimmed mean (Yin et al. 2018, Definition 2): the mean of
// the n values of a coordinate without the ⌊βn⌋ smallest and the ⌊βn⌋ largest values, where β is the trim share. An
// update counts as many times as its agent was drawn, and the weights p_k of agents have no effect.
const TrimmedMean = "trimmed_mean"

func newTrimmedMean[T wire.Float](c Config) Rule[T] {
	return coordinatewiseRule[T]{
		checkDrawCount: func(n int) error { return requireDraws(TrimmedMean, n, 2*trimCount(c.TrimShare, n)+1) },
		combineValues: func(sorted []float64) float64 {
			n := len(sorted)
			cut, sum := trimCount(c.TrimShare, n), 0.0
			for _, x := range sorted[cut : n-cut] {
				sum += x
			}
			return sum / float64(n-2*cut)
		},
	}
}

func checkTrimShare(c Config, k *spec.ProblemList) {
	if c.Rule != TrimmedMean {
		k.Require(c.TrimShare == 0 || c.TrimShare == DefaultConfig().TrimShare, "trim",
			"is %v, but only the rule %s uses this key: remove it", c.TrimShare,
			TrimmedMean)
		return
	}
	k.Require(c.TrimShare >= 0 && c.TrimShare < 0.5, "trim", "must be at least 0 and below 0.5, but is %v", c.TrimShare)
}

func trimShareWarning(c Config, draws int) string {
	if trimCount(c.TrimShare, draws) > 0 {
		return ""
	}
	return fmt.Sprintf("%s would trim no values: aggregation.trim is %v, which is less than one of %d updates; "+
		"increase aggregation.trim or participants", TrimmedMean, c.TrimShare, draws)
}

// trimCount returns ⌊βn⌋, the number of values that are removed at each end of n sorted values, where β is the trim
// share. It tolerates a rounding error of 10⁻⁹, so that 0.29·100 yields 29.
func trimCount(trim float64, n int) int { return int(float64(trim*float64(n)) + 1e-9) }
