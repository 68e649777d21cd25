package spec

import (
	"fmt"
	"slices"
	"strings"
)

// read sets dst to the word that text is, if it is among the known ones.
func read[W ~string](dst *W, text []byte, known []W) error {
	if err := check(W(text), known); err != nil {
		return err
	}
	*dst = W(text)
	return nil
}

// check returns an error that names the known words if word is none of them.
func check[W ~string](word W, known []W) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("want %s, got %q", or(known), string(word))
}

// OneOf needs one of the words that only one file knows.
func OneOf[W ~string](c *Check, key string, got W, known ...W) { c.Valid(key, check(got, known)) }

// or joins words as "a, b or c".
func or[W ~string](words []W) string {
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
