package grid

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Absent decides which values stand for "no value". Every source and every type of column uses it, so that NA, an empty
// cell, a JSON null and a declared number such as -9999 mean the same wherever they occur. The zero value knows the
// usual words only.
type Absent struct {
	words   []string // lower case, in addition to the usual ones
	numbers []float64
}

// NewAbsent returns a definition that also knows the given words and numbers. Case does not matter; a number is equal
// to another spelling of itself, as -9999 is to -9999.0.
func NewAbsent(more []string) Absent {
	var a Absent
	for _, text := range more {
		text = strings.ToLower(strings.TrimSpace(text))
		if v, err := strconv.ParseFloat(text, 64); err == nil && v == v {
			a.numbers = append(a.numbers, v)
		} else {
			a.words = append(a.words, text)
		}
	}
	return a
}

// Text reports whether a text stands for no value.
func (a *Absent) Text(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	switch text {
	case "", "-", "--", "?", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "nil", "none", "undef",
		"undefined", "unavailable", "unknown":
		return true
	}
	if slices.Contains(a.words, text) {
		return true
	}
	if len(a.numbers) == 0 {
		return false
	}
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && a.Number(v)
}

// Number reports whether a number stands for no value.
func (a *Absent) Number(v float64) bool { return math.IsNaN(v) || slices.Contains(a.numbers, v) }
