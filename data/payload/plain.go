package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// plainDecoder decodes a payload that is one number or one text, possibly in quotes.
type plainDecoder struct{}

// Decode implements Decoder. It never returns an error: a payload that is not a number is a text.
func (plainDecoder) Decode(m Message) (Content, error) {
	return TreeContent(plainValue(trimPayload(m.Payload)), TimeField{})
}

// trimPayload removes a byte order mark, and white space and NUL bytes at both ends. Programs in C often send a final
// NUL byte.
func trimPayload(text []byte) []byte { return bytes.Trim(text, "\ufeff\x00 \t\r\n") }

// plainValue returns the value of a trimmed payload. An object or a list is returned as a tree.
func plainValue(text []byte) any {
	if len(text) > 0 && (text[0] == '"' || text[0] == '{' || text[0] == '[') {
		if v, err := ParseJSON(text); err == nil {
			return v
		}
	}
	return NumberOrText(string(text))
}

// NumberOrText returns a json.Number if text is a number, otherwise the trimmed text.
func NumberOrText(text string) any {
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseFloat(text, 64); err == nil && v == v || errors.Is(err, strconv.ErrRange) {
		return json.Number(text)
	}
	return text
}
