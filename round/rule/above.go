package rule

import "slices"

// Fewest is how many updates a set has at least whose lengths alone speak against one of them: columns of unlike units
// make honest updates thousands of times as long as others, and of few updates such a one is no rarity.
const Fewest = 5

// Above returns the places of the updates that are longer than that many times the median of all lengths, of an even
// number the mean of the middle two. Of fewer than 5 updates none is, and none where the median is 0.
func (c Config) Above(lengths []float64) (median float64, long []int) {
	n := len(lengths)
	if c.RefuseAbove == 0 || n < Fewest {
		return 0, nil
	}
	sorted := slices.Sorted(slices.Values(lengths))
	median = sorted[(n-1)/2]/2 + sorted[n/2]/2
	for k, l := range lengths {
		if median > 0 && l > c.RefuseAbove*median {
			long = append(long, k)
		}
	}
	return median, long
}
