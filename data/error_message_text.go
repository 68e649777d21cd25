package data

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"

	"github.com/fedmesh/fedmesh/data/grid"
)

// IsFinite reports whether v is neither infinite nor NaN.
func IsFinite(v float64) bool { return v-v == 0 }

// QuoteForMessage prepares a text from the data for a message: it converts the text to UTF-8, shortens it to at most 32
// characters and adds quotes.
func QuoteForMessage(text string) string {
	const most = 32
	if len(text) > 1<<10 {
		cut := 1 << 10
		for cut > 1<<10-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	text = UTF8Text(text)
	if runes := []rune(text); len(runes) > most {
		return strconv.Quote(string(runes[:most])) + "…"
	}
	return strconv.Quote(text)
}

// DescribeCellProblem returns a message that describes why a cell or a reading is rejected.
func DescribeCellProblem(text string, why UnusedReason) string {
	switch {
	case why == grid.ReasonMalformed:
		return text
	case why == grid.ReasonBadTime:
		return QuoteForMessage(text) + " is not a time"
	case why == grid.ReasonLate:
		return QuoteForMessage(text) + " is earlier than the time of a previous row: sort the rows by time"
	case why == grid.ReasonFutureTime:
		return QuoteForMessage(text) + " is later than the times of the following lines, or in the future: " +
			"correct the time"
	case why == grid.ReasonOutOfRange:
		return QuoteForMessage(text) + " is outside the range of the input"
	case why == grid.ReasonWrongUnit:
		return QuoteForMessage(text) + " has a unit that cannot be converted to the unit of the input"
	case why == grid.ReasonUnknownClass:
		return QuoteForMessage(text) + " is not one of the classes"
	case text == "":
		return "the value is empty, but a number is required"
	case why == grid.ReasonMissing:
		return QuoteForMessage(text) + " is a missing value, but a number is required"
	case why == grid.ReasonNotFinite && strings.ContainsAny(text, "0123456789"):
		return QuoteForMessage(text) + " is too large"
	case why == grid.ReasonNotFinite:
		return QuoteForMessage(text) + " is not finite"
	}
	return QuoteForMessage(text) + " is not a number"
}

// fallbackEncoding is the encoding of lines that are not valid UTF-8. Spreadsheets in Western Europe write
// Windows-1252, which includes all printable characters of Latin-1.
var fallbackEncoding encoding.Encoding = charmap.Windows1252

// UTF8Text returns text in UTF-8. It decodes invalid UTF-8 with fallbackEncoding.
func UTF8Text(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	decoded, err := fallbackEncoding.NewDecoder().String(text)
	if err != nil {
		return strings.ToValidUTF8(text, "\ufffd")
	}
	return decoded
}
