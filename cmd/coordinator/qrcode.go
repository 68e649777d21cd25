package main

import (
	"strings"

	"rsc.io/qr"
)

// qrText returns a QR code as text for a terminal with a dark background. Each character shows two modules of the code,
// one above the other, and the margin is four modules wide, as readers require.
func qrText(text string) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", err
	}
	const margin = 4
	light := func(x, y int) bool { return !code.Black(x, y) } // also true for coordinates outside the code
	var b strings.Builder
	for y := -margin; y < code.Size+margin; y += 2 {
		for x := -margin; x < code.Size+margin; x++ {
			switch up, down := light(x, y), light(x, y+1) && y+1 < code.Size+margin; {
			case up && down:
				b.WriteString("█")
			case up:
				b.WriteString("▀")
			case down:
				b.WriteString("▄")
			default:
				b.WriteString(" ")
			}
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}
