package grid_test

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TestSources checks that readings of several sensors of one input at the same time are all used, and that their sum is
// bit-identical in any order of arrival. A duplicate reading of a sensor must be used only once.
func TestSources(t *testing.T) {
	values := []float64{1e16, 1, -1e16, 0.1}
	var first []float32
	for shift := range values {
		c := hourly(func(c *grid.RowBuilderConfig) {
			c.Recipe.Inputs[0].Resampling, c.Recipe.Inputs[0].ValidRange = spec.ResampleSum,
				nil
		})
		var came []grid.Reading
		for k := int64(10); k < 14; k++ {
			for i := range values {
				j := (i + shift) % len(values)
				r := grid.Reading{Input: "temp", Time: k * hour, Value: values[j], Source: uint64(7 * (j + 1))}
				came = append(came, r, r)
			}
		}
		rows, g := run(t, c, came)
		counts, _, _ := g.ReadingCounts()
		// The readings of the last hour are still queued.
		if n := counts[0]; n.Used != 12 || n.Unused[grid.ReasonDuplicate] != 12 {
			t.Errorf("%v", n)
		}
		if first == nil {
			first = rows.X
		}
		if len(first) != 2 || !slices.Equal(rows.X, first) {
			t.Errorf("in another order %v, want %v", rows.X, first)
		}
	}
}

// TestAbsent checks that missing values are recognised case-insensitively and in any number format.
func TestAbsent(t *testing.T) {
	var usual grid.MissingValues
	own := grid.NewMissingValues([]string{"-9999", "Asleep", "1e20", " 65535.0 "})
	for _, text := range []string{"", " ", "-", "--", "?", "NA", "n/a", "#N/A", "NaN", "-nan", "null", "None", "nil",
		"unavailable", "Unknown", "UNDEF", "<NA>", "-nan(ind)", "NaN(snan)", "nan(0x8000000000000)", "1.#QNAN",
		"-1.#IND", "-1.#IND00", "1.#QNAN0", "1.#snan", "1.#J", "Offline"} {
		if !usual.HasText(text) || !own.HasText(text) {
			t.Errorf("%q is a value", text)
		}
	}
	for _, text := range []string{"-9999", "-9999.0", "-9.999e3", "ASLEEP", "100000000000000000000", "65535"} {
		if usual.HasText(text) || !own.HasText(text) {
			t.Errorf("%q: %t and %t, want false and true", text, usual.HasText(text), own.HasText(text))
		}
	}
	for _, text := range []string{"0", "N", "on", "none of them", "9999", "inf", "1.#INF", "1.#", "nano", "nan(",
		"--nan", "1", "1.0"} {
		if usual.HasText(text) || own.HasText(text) {
			t.Errorf("%q is none", text)
		}
	}
	if !own.HasNumber(-9999) || own.HasNumber(9999) || usual.HasNumber(-9999) {
		t.Error("numbers")
	}
}

// TestClassOfAReading checks that a text or a number names a class if the text is the same or the number is equal. true
// and false, case-insensitively, are 1 and 0.
func TestClassOfAReading(t *testing.T) {
	text := func(text string) grid.Reading { return grid.Reading{Text: text} }
	number := func(v float64) grid.Reading { return grid.Reading{Value: v} }
	numbers, words, both := []string{"0", "1", "10"}, []string{"false", "true"}, []string{"true", "1", "NaN", "0.50"}
	const unknown, missing = -1, -2
	for _, tt := range []struct {
		classes []string
		reading grid.Reading
		want    float64
	}{
		{numbers, text("1"), 1}, {numbers, text("1.0"), 1}, {numbers, text("01"), 1}, {numbers, text("+1e1"), 2},
		{numbers, text("TRUE"), 1}, {numbers, text("true"), 1}, {numbers, text("False"), 0}, {numbers, number(10), 2},
		{numbers, text("2"), unknown}, {numbers, text("yes"), unknown}, {numbers, number(1.5), unknown},
		{numbers, text("NA"), missing}, {numbers, text("-nan(ind)"), missing},
		{words, text("true"), 1}, {words, text("True"), 1}, {words, text("TRUE"), 1}, {words, text("FALSE"), 0},
		{words, text("1"), 1}, {words, text("1.0"), 1}, {words, number(0), 0}, {words, text("yes"), unknown},
		{words, number(2), unknown},
		{both, text("true"), 0}, {both, text("1"), 1}, {both, number(1), 0}, {both, text("NaN"), 2},
		{both, text("nan"), missing}, {both, text(".5"), 3},
	} {
		v, why := grid.NewReadingCheck(spec.InputSeries{Classes: tt.classes}, grid.MissingValues{},
			grid.DeviceInput{})(tt.reading)
		switch why {
		case grid.ReasonUnknownClass:
			v = unknown
		case grid.ReasonMissing:
			v = missing
		}
		if v != tt.want {
			t.Errorf("%+v is %v of %q, want %v", tt.reading, v, tt.classes, tt.want)
		}
	}
}
