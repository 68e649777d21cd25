package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

// Many programs write texts that are almost JSON: NaN or None instead of null, numbers such as 0x1F, or control
// characters in strings. The functions in this file parse such texts. At most the value of one member is lost.

// ParseJSON parses one JSON value. Numbers are returned as json.Number with their text unchanged. If the text is not
// valid JSON, it is repaired as [repairedJSON] describes. An error shows the text around the position of the fault.
func ParseJSON(text []byte) (any, error) {
	text = trimPayload(text)
	v, _, err := parseStrictJSON(text)
	if err == nil {
		return v, nil
	}
	repaired := repairJSON(text)
	v, offset, err := parseStrictJSON(repaired.text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, quoteTextAround(text, repaired.originalOffsetOf(offset)))
	}
	return v, nil
}

// parseStrictJSON parses one JSON value. If the text is not valid JSON, it returns the byte offset of the fault.
func parseStrictJSON(text []byte) (v any, offset int, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	syntax := (*json.SyntaxError)(nil)
	switch {
	case errors.As(err, &syntax):
		return nil, int(syntax.Offset) - 1, err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, len(text), errors.New("the JSON value is incomplete")
	case errors.Is(err, io.EOF):
		return nil, 0, errors.New("no JSON value found")
	case err != nil:
		return nil, 0, err
	case d.More():
		return nil, int(d.InputOffset()), errors.New("unexpected text after the JSON value")
	}
	return v, 0, nil
}

// quoteTextAround returns the text around an offset, quoted for a message. Omitted text is replaced by an ellipsis.
func quoteTextAround(text []byte, offset int) string {
	const before, after = 24, 16 // lengths in runes
	offset = min(max(offset, 0), len(text))
	from, to := offset, offset
	for n := 0; n < before && from > 0; n++ {
		_, size := utf8.DecodeLastRune(text[:from])
		from -= size
	}
	for n := 0; n < after && to < len(text); n++ {
		_, size := utf8.DecodeRune(text[to:])
		to += size
	}
	part := data.UTF8Text(string(text[from:to]))
	quoted := strconv.Quote(part)
	if !strings.ContainsFunc(part, func(c rune) bool { return c == '`' || !strconv.IsPrint(c) }) {
		quoted = "`" + part + "`" // easier to read, because JSON contains many double quotes
	}
	if from > 0 {
		quoted = "…" + quoted
	}
	if to < len(text) {
		quoted += "…"
	}
	return quoted
}

// repairedJSON is a text that was changed into valid JSON, if possible:
//   - In strings, control characters and backslashes that do not start an escape sequence are escaped.
//   - Outside of strings, control characters are replaced by spaces.
//   - NaN, None, nil and undefined are replaced by null, and words for infinity by the string Infinity. These words,
//     true, false and null are matched case-insensitively. See [grid.IsNaNText] for other forms of NaN.
//   - Any other unquoted value that is not valid JSON, such as 0x1F, is replaced by a string with the same text.
type repairedJSON struct {
	text           []byte
	originalLength int // length of the original text in bytes
	pieces         []repairedPiece
	openBrackets   []byte // opening brackets that have not been closed
	expectsValue   bool   // whether the next word is the value of a member or an element
}

// repairedPiece contains the offsets of one piece of the text, before and after the repair.
type repairedPiece struct{ originalOffset, repairedOffset int }

// repairJSON returns the repaired form of a text.
func repairJSON(text []byte) *repairedJSON {
	r := &repairedJSON{text: make([]byte, 0, len(text)), originalLength: len(text)}
	for i := 0; i < len(text); {
		n := 1
		r.pieces = append(r.pieces, repairedPiece{i, len(r.text)})
		switch c := text[i]; {
		case c == '"':
			n = jsonStringLength(text[i:])
			r.addString(text[i : i+n])
			r.expectsValue = false
		case strings.IndexByte("{}[]:,", c) >= 0:
			r.addPunctuation(c)
		case c <= ' ':
			r.text = append(r.text, ' ')
		default:
			for i+n < len(text) && text[i+n] > ' ' && strings.IndexByte(`{}[]:,"`, text[i+n]) < 0 {
				n++
			}
			r.addWord(text[i : i+n])
			r.expectsValue = false
		}
		i += n
	}
	return r
}

// originalOffsetOf converts an offset in the repaired text to an offset in the original text.
func (r *repairedJSON) originalOffsetOf(offset int) int {
	i := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i].repairedOffset > offset }) - 1
	if i < 0 {
		return 0
	}
	next := r.originalLength
	if i+1 < len(r.pieces) {
		next = r.pieces[i+1].originalOffset
	}
	return min(r.pieces[i].originalOffset+offset-r.pieces[i].repairedOffset, next)
}

// jsonStringLength returns the length in bytes of the string at the start of a text.
func jsonStringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(text)
}

func (r *repairedJSON) addString(text []byte) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ':
			r.text = fmt.Appendf(r.text, `\u%04x`, c)
		case c == '\\' && !beginsJSONEscape(text[i:]):
			r.text = append(r.text, `\\`...)
		case c == '\\':
			r.text = append(r.text, c, text[i+1])
			i++
		default:
			r.text = append(r.text, c)
		}
	}
}

// beginsJSONEscape reports whether a text starts with a JSON escape sequence.
func beginsJSONEscape(text []byte) bool {
	switch {
	case len(text) < 2:
		return false
	case text[1] != 'u':
		return strings.IndexByte(`"\/bfnrt`, text[1]) >= 0
	case len(text) < 6:
		return false
	}
	_, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return err == nil
}

func (r *repairedJSON) addPunctuation(c byte) {
	r.text = append(r.text, c)
	switch c {
	case '{', '[':
		r.openBrackets = append(r.openBrackets, c)
	case '}', ']':
		r.openBrackets = r.openBrackets[:max(0, len(r.openBrackets)-1)]
	}
	inArray := len(r.openBrackets) > 0 && r.openBrackets[len(r.openBrackets)-1] == '['
	r.expectsValue = c == ':' || c == '[' || c == ',' && inArray
}

// addWord adds an unquoted text, such as a number or a word, and repairs it.
func (r *repairedJSON) addWord(word []byte) {
	lower := strings.ToLower(string(word))
	unsigned := strings.TrimPrefix(strings.TrimPrefix(lower, "-"), "+")
	switch {
	case json.Valid(word):
		r.text = append(r.text, word...)
	case lower == "true", lower == "false":
		r.text = append(r.text, lower...)
	case grid.IsNaNText(lower), lower == "null", lower == "none", lower == "nil", lower == "undefined":
		r.text = append(r.text, "null"...)
	case isInfinityText(unsigned):
		number := `"Infinity"`
		if lower[0] == '-' {
			number = `"-Infinity"`
		}
		r.text = append(r.text, number...)
	case r.expectsValue:
		quoted, err := json.Marshal(string(word))
		if err != nil { // this error cannot occur for strings
			quoted = word
		}
		r.text = append(r.text, quoted...)
	default:
		r.text = append(r.text, word...)
	}
}

// isInfinityText reports whether a text in lower case, without its sign, means infinity. The C library of Windows
// prints 1.#INF.
func isInfinityText(text string) bool {
	return text == "inf" || text == "infinity" || strings.TrimRight(text, "0") == "1.#inf"
}
