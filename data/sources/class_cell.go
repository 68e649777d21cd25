package sources

import (
	"math"
	"slices"
)

// classCell reads a cell of an input with classes. It returns the text of the cell. If the text is none of the classes
// but a number in the notation of the file, it returns only the number: with a decimal comma, 1,0 is the class 1.
func (d *csvDialect) classCell(text string, classes []string) (said string, number float64) {
	if !slices.Contains(classes, text) {
		if v, why := d.number(text); why == "" {
			return "", v
		}
	}
	return text, math.NaN()
}
