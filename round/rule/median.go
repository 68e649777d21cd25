package rule

import "github.com/fedmesh/fedmesh/wire"

// Median is the name of the rule of the coordinate-wise median (Yin et al. 2018, Definition 1). For an even number of
// values, the median is the mean of the middle two. An update counts as many times as its agent was drawn, and the
// weights p_k of agents have no effect.
const Median = "median"

func newMedian[T wire.Float](Config) Rule[T] {
	return coordinatewiseRule[T]{
		checkDrawCount: func(n int) error { return requireDraws(Median, n, 1) },
		combineValues: func(sorted []float64) float64 {
			n := len(sorted)
			return (sorted[(n-1)/2] + sorted[n/2]) / 2
		},
	}
}
