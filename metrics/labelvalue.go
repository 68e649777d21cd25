package metrics

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mostLabelBytes bounds the bytes of a name that become a label value.
const mostLabelBytes = 128

// SanitizeLabelValue returns a name from outside the program, such as a column of a file, as the value of a label. It
// replaces invalid UTF-8, on which client_golang panics, and unprintable characters, on which scrapers fail, by Go's
// escapes, and shortens long names. Different names may have the same label value.
func SanitizeLabelValue(name string) string {
	shortened := len(name) > mostLabelBytes
	if shortened {
		cut := mostLabelBytes
		for i := range utf8.UTFMax { // not within a character
			if utf8.RuneStart(name[mostLabelBytes-i]) {
				cut -= i
				break
			}
		}
		name = name[:cut]
	}
	var b strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			quoted := strconv.Quote(name[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(name[:size])
		}
		name = name[size:]
	}
	if shortened {
		b.WriteString("…")
	}
	return b.String()
}
