package spec

import (
	"fmt"
	"slices"
	"strings"
)

// parseEnum sets dst to text if text is one of the known names. Otherwise it returns an error that lists the known
// names.
func parseEnum[W ~string](dst *W, text []byte, known []W) error {
	if err := checkEnum(W(text), known); err != nil {
		return err
	}
	*dst = W(text)
	return nil
}

// checkEnum returns an error that lists the known names if word is not one of them.
func checkEnum[W ~string](word W, known []W) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("want %s, got %q", JoinWithOr(known), string(word))
}

// RequireOneOf adds an error under key to c if got is not one of the names in known.
func RequireOneOf[W ~string](c *ProblemList, key string, got W, known ...W) {
	c.AddError(key, checkEnum(got, known))
}

// JoinWithOr joins words to a list for error messages, such as "a, b or c".
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
