package config

import (
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// closestName returns the candidate closest to name, or "" if none is close. Upper case, and "-" for "_", are not
// counted as differences.
func closestName(name string, candidates []string) string {
	return spec.ClosestSpelling(name, candidates, normalizeKey)
}

func normalizeKey(key string) string {
	const most = 200 // far above any key; limits the cost of very long names
	return strings.ToLower(strings.ReplaceAll(key[:min(len(key), most)], "-", "_"))
}

// didYouMean converts a result of closestName to a hint.
func didYouMean(key string) string {
	if key == "" {
		return ""
	}
	return "did you mean " + quoteShortened(key) + "?"
}
