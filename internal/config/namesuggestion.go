package config

import (
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// closestName returns the candidate that name was most likely meant to be, or "" if none is near: upper case and "-"
// for "_" count as no mistakes.
func closestName(name string, candidates []string) string {
	return spec.ClosestSpelling(name, candidates, normalizeKey)
}

func normalizeKey(key string) string {
	const most = 200 // far above any key, and keeps the distance of a monstrous one cheap
	return strings.ToLower(strings.ReplaceAll(key[:min(len(key), most)], "-", "_"))
}

// didYouMean turns a result of closest into a hint.
func didYouMean(key string) string {
	if key == "" {
		return ""
	}
	return "did you mean " + quoteShortened(key) + "?"
}
