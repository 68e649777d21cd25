package rule

// MinUpdatesForNormBounds is how many updates a set has at least whose lengths alone speak against one of them: columns
// of unlike units make honest updates thousands of times as long as others, and of few updates such a one is no rarity.
const MinUpdatesForNormBounds = 5

// ExcessiveNormIndices returns the places of the updates that are too long to be taken, where usual is their usual
// length; of fewer than 5 updates none is, and none where usual is 0: nothing can be told then.
func (c Config) ExcessiveNormIndices(usual float64, lengths []float64) (places []int) {
	if c.RefuseAboveFactor == 0 || usual == 0 || len(lengths) < MinUpdatesForNormBounds {
		return nil
	}
	for k, l := range lengths {
		if l > c.RefuseAboveFactor*usual {
			places = append(places, k)
		}
	}
	return places
}

// BoundingConfigKey names the key that bounds an update of which a part counts; "" where all of it does.
func (c Config) BoundingConfigKey(u *UpdateMetadata) string {
	switch {
	case u.ClippedNorm() == u.Norm:
		return ""
	case u.MaxNorm == c.ClipNorm:
		return "clip"
	}
	return "clip_above"
}

// MaxCountedNorm is the norm that counts of an update at most, where usual is the usual length, and weight the weight
// that its steps carried; 0 = any. Other rules than the mean are not bounded by the usual length: they bound what is
// far from the rest by themselves.
func (c Config) MaxCountedNorm(usual, weight float64) float64 {
	above := c.ClipAboveFactor * usual * weight
	if c.Rule != Mean || above == 0 {
		return c.ClipNorm
	}
	if c.ClipNorm == 0 {
		return above
	}
	return min(above, c.ClipNorm)
}
