package rule

// MinUpdatesForNormBounds is the minimum number of updates in a round for excluding an update because of its norm
// alone. Data columns in different units can make honest updates thousands of times larger than others, so fewer
// updates give no reliable comparison.
const MinUpdatesForNormBounds = 5

// ExcessiveNormIndices returns the indices of the updates whose norm is so far above the usual norm that they must not
// be aggregated. It returns nil for fewer than 5 updates, and if the usual norm is unknown (0).
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

// BoundingConfigKey returns the configuration key that sets the norm bound of the update. It returns "" if the update
// is not clipped.
func (c Config) BoundingConfigKey(u *UpdateMetadata) string {
	switch {
	case u.ClippedNorm() == u.Norm:
		return ""
	case u.MaxNorm == c.ClipNorm:
		return "clip"
	}
	return "clip_above"
}

// MaxCountedNorm returns the maximum norm of an update, given the usual norm and the weight of the agent's steps; 0
// means no limit. ClipAboveFactor affects only the mean, since the other rules are robust to large updates.
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
