package config

import (
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// closestName returns the candidate most similar to name, or "" if none is similar. It ignores case and treats "-" and
// "_" as equal.
func closestName(name string, candidates []string) string {
	return spec.ClosestSpelling(name, candidates, normalizeKey)
}

func normalizeKey(key string) string {
	const most = 200 // maximum length of a name in bytes; limits the cost of long input and is longer than any key
	return strings.ToLower(strings.ReplaceAll(key[:min(len(key), most)], "-", "_"))
}

// didYouMean returns the hint for a key suggested by closestName. didYouMean returns "" if closestName suggested no
// key.
func didYouMean(key string) string {
	if key == "" {
		return ""
	}
	return "did you mean " + quoteShortened(key) + "?"
}
