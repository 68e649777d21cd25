package rule

// Fewest is how many updates a set has at least whose lengths alone speak against one of them: columns of unlike units
// make honest updates thousands of times as long as others, and of few updates such a one is no rarity.
const Fewest = 5

// Above returns the places of the updates that are too long to be taken, where usual is their usual length; of fewer
// than 5 updates none is, and none where usual is 0: nothing can be told then.
func (c Config) Above(usual float64, lengths []float64) (places []int) {
	if c.RefuseAbove == 0 || usual == 0 || len(lengths) < Fewest {
		return nil
	}
	for k, l := range lengths {
		if l > c.RefuseAbove*usual {
			places = append(places, k)
		}
	}
	return places
}

// Most is how long an update may be that the mean takes as it is, where usual is the usual length; 0 = any length.
// Other rules do not clip: they cut what is far from the rest by themselves.
func (c Config) Most(usual float64) float64 {
	if c.Rule != Mean {
		return 0
	}
	return c.Clip * usual
}
