package spec

import (
	"fmt"
	"slices"
	"strings"
)

// parseEnum sets dst to text if this is one of the known words.
func parseEnum[W ~string](dst *W, text []byte, known []W) error {
	if err := checkEnum(W(text), known); err != nil {
		return err
	}
	*dst = W(text)
	return nil
}

// checkEnum returns an error that names the known words if word is none of them.
func checkEnum[W ~string](word W, known []W) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("want %s, got %q", JoinWithOr(known), string(word))
}

// RequireOneOf needs one of the words that only one file knows.
func RequireOneOf[W ~string](c *ProblemList, key string, got W, known ...W) {
	c.AddError(key, checkEnum(got, known))
}

// JoinWithOr joins words as "a, b or c".
func JoinWithOr[W ~string](words []W) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	last := len(texts) - 1
	if last == 0 {
		return texts[0]
	}
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
