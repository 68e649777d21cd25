package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"rsc.io/qr"
)

// TestQR reads the modules (dots) of a QR code from its drawing as text. Every module must be present, and the code
// must be surrounded by a light margin of four modules.
func TestQR(t *testing.T) {
	const text = "agentd join https://gw.example:8884 --token " +
		"fm1.press-01.ONUXQ5DFMVXCA43FMNZGK5DTEE2HKD4YXVM7Z7EUNWSFVKV6SM57"
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := qrText(text)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
	width := utf8.RuneCountInString(lines[0])
	if width != code.Size+8 || len(lines) != (code.Size+8+1)/2 || width > 80 {
		t.Fatalf("%d lines of %d letters for %d modules", len(lines), width, code.Size)
	}
	for i, line := range lines {
		for x, letter := range []rune(line) {
			for half, light := range []bool{letter == '█' || letter == '▀', letter == '█' || letter == '▄'} {
				at := 2*i + half - 4
				inside := x >= 4 && x < code.Size+4 && at >= 0 && at < code.Size
				if at >= code.Size+4 {
					continue // this line is below the bottom margin
				}
				if want := !inside || !code.Black(x-4, at); light != want {
					t.Fatalf("module %d, %d is light: %v", x-4, at, light)
				}
			}
		}
	}
}
