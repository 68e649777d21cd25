package grid

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// MissingValues is the set of texts and numbers that mean "no value". All sources and column types use it, so that
// NA, an empty cell and a configured number such as -9999 have the same meaning everywhere. The zero value contains
// only the standard texts, such as NA and null, and NaN.
type MissingValues struct {
	extraTexts []string // lower-case texts in addition to the standard texts
	numbers    []float64
}

// NewMissingValues returns a set that also contains the given texts and numbers. Texts are compared case-insensitively,
// and numbers by value: -9999 matches -9999.0.
func NewMissingValues(more []string) MissingValues {
	var a MissingValues
	for _, text := range more {
		text = strings.ToLower(strings.TrimSpace(text))
		if v, err := strconv.ParseFloat(text, 64); err == nil && v == v {
			a.numbers = append(a.numbers, v)
		} else {
			a.extraTexts = append(a.extraTexts, text)
		}
	}
	return a
}

// These texts are sent by a device when it goes offline. The previous values of its inputs are then no longer valid.
const (
	textUnavailable = "unavailable"
	textOffline     = "offline"
)

// meansOffline reports whether text means that the device of an input is offline.
func meansOffline(text string) bool {
	text = strings.TrimSpace(text)
	return strings.EqualFold(text, textUnavailable) || strings.EqualFold(text, textOffline)
}

// HasText reports whether text means a missing value.
func (a *MissingValues) HasText(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	switch text {
	case "", "-", "--", "?", "na", "n/a", "#n/a", "<na>", "null", "nil", "none", "undef",
		"undefined", "unknown", textUnavailable, textOffline:
		return true
	}
	if IsNaNText(text) || slices.Contains(a.extraTexts, text) {
		return true
	}
	if len(a.numbers) == 0 {
		return false
	}
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && a.HasNumber(v)
}

// HasNumber reports whether v means a missing value.
func (a *MissingValues) HasNumber(v float64) bool {
	return math.IsNaN(v) || slices.Contains(a.numbers, v)
}

// IsNaNText reports whether text means "not a number", case-insensitively. Besides NaN and -NaN, it accepts the texts
// that the C library of Windows prints, such as -nan(ind), 1.#QNAN and -1.#IND00.
func IsNaNText(text string) bool {
	text = strings.ToLower(text)
	if text != "" && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	if rest, found := strings.CutPrefix(text, "nan"); found {
		return rest == "" || rest[0] == '(' && strings.HasSuffix(rest, ")")
	}
	if rest, found := strings.CutPrefix(text, "1.#"); found {
		rest = strings.TrimRight(rest, "0") // %.6f pads with zeros to 6 characters
		return rest == "qnan" || rest == "snan" || rest == "ind" || rest == "j"
	}
	return false
}
