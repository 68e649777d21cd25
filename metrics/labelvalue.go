package metrics

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mostLabelBytes is the maximum length of a name in a label value, in bytes.
const mostLabelBytes = 128

// SanitizeLabelValue converts an external name, such as a CSV column, to a valid label value; different names may give
// the same value. It shortens long names and replaces invalid UTF-8, which makes client_golang panic, and unprintable
// characters, which make scrapers fail, by Go escapes.
func SanitizeLabelValue(name string) string {
	shortened := len(name) > mostLabelBytes
	if shortened {
		cut := mostLabelBytes
		for i := range utf8.UTFMax {
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
