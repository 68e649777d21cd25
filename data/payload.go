package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
)

// path leads to a value in JSON: the names of members and the numbers of elements, from 0. The empty path is all of it.
type path []string

// parsePath reads names and numbers that are separated by dots, as in sensors.0.value. A backslash makes a dot, or a
// backslash, part of a name. It is the common part of what GJSON, and telegraf with it, takes.
func parsePath(text string) (path, error) {
	if text == "" {
		return nil, nil
	}
	var p path
	var name strings.Builder
	escaped := false
	for _, c := range text {
		switch {
		case escaped && c != '.' && c != '\\':
			return nil, fmt.Errorf(`path %s: a backslash goes before a dot or a backslash only`, shorten(text))
		case !escaped && c == '\\':
			escaped = true
			continue
		case !escaped && c == '.':
			p = append(p, name.String())
			name.Reset()
		default:
			name.WriteRune(c)
		}
		escaped = false
	}
	if escaped {
		return nil, fmt.Errorf("path %s: ends in a backslash", shorten(text))
	}
	p = append(p, name.String())
	for _, name := range p {
		if name == "" {
			return nil, fmt.Errorf("path %s: has an empty name", shorten(text))
		}
	}
	return p, nil
}

// dotted returns the path as text in the syntax of parsePath.
func (p path) dotted() string {
	escape := strings.NewReplacer(`\`, `\\`, `.`, `\.`)
	names := make([]string, len(p))
	for i, name := range p {
		names[i] = escape.Replace(name)
	}
	return strings.Join(names, ".")
}

// in returns the value at the path.
func (p path) in(v any) (any, bool) {
	for _, name := range p {
		found := false
		switch of := v.(type) {
		case map[string]any:
			v, found = of[name]
		case []any:
			i, err := strconv.ParseUint(name, 10, 31)
			if found = err == nil && i < uint64(len(of)); found {
				v = of[i]
			}
		}
		if !found {
			return nil, false
		}
	}
	return v, true
}

// parseJSON parses one JSON value. Numbers are returned as json.Number, with their text unchanged. Many programs
// write words that JSON does not define: parseJSON reads NaN, None and undefined as null, and Infinity as a number
// that is too large. The case of words does not matter.
func parseJSON(text []byte) (any, error) {
	v, err := strictJSON(text)
	if err == nil {
		return v, nil
	}
	if v, wrong := strictJSON(replaceNonJSONWords(text)); wrong == nil {
		return v, nil
	}
	return nil, err
}

func strictJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON value is incomplete")
		}
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("unexpected %s after the JSON value", shorten(string(text[d.InputOffset():])))
	}
	return v, nil
}

// nonJSONWords maps words in lower case to their JSON equivalents.
var nonJSONWords = map[string]string{"nan": "null", "none": "null", "undefined": "null", "inf": "1e999",
	"infinity": "1e999", "true": "true", "false": "false", "null": "null"}

// replaceNonJSONWords returns text with each word of nonJSONWords outside of strings replaced by its JSON equivalent.
func replaceNonJSONWords(text []byte) []byte {
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	all := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		from := i
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
		case letter(c) || (c == '-' || c == '+') && i+1 < len(text) && letter(text[i+1]):
			for i++; i < len(text) && letter(text[i]); i++ {
			}
			if word, found := nonJSONWords[strings.ToLower(strings.TrimLeft(string(text[from:i]), "+-"))]; found {
				if c == '-' && word == "1e999" {
					word = "-1e999"
				}
				all = append(all, word...)
				continue
			}
		default:
			for i++; i < len(text) && text[i] != '"' && text[i] != '-' && text[i] != '+' && !letter(text[i]); i++ {
				// skip the whole number: the e of its exponent is not a word
				if c := text[i]; c >= '0' && c <= '9' {
					for i+1 < len(text) && strings.IndexByte("0123456789.eE+-", text[i+1]) >= 0 {
						i++
					}
				}
			}
		}
		all = append(all, text[from:i]...)
	}
	return all
}

// column is where the values of an input are in a payload.
type column struct {
	input string
	path  path
}

// clock is where the time of a payload is, and how it is written.
type clock struct {
	path path // empty = the time of arrival
	timeFormat
}

const (
	// leastTime is the earliest time of a reading: a device whose clock was never set says 1970.
	leastTime = 946_684_800 * int64(time.Second)
	// futureMost is how far ahead of the device's clock the time of a reading may be.
	futureMost = 5 * time.Minute
)

// payloads turns payloads into readings.
type payloads struct {
	columns []column // empty = each member of a JSON object is an input, by its name
	clock   clock
	put     func(Reading)
	log     *ledger
}

// payloadMeta describes the origin and the arrival of a payload.
type payloadMeta struct {
	where  string    // topic or line number, for messages
	source uint64    // Source of its readings
	at     time.Time // time of arrival
}

// take processes a payload. It ignores a byte order mark, and white space and NUL bytes at both ends. Programs in C
// often send a final NUL byte.
func (p *payloads) take(text []byte, from payloadMeta) {
	text = bytes.Trim(bytes.TrimPrefix(text, []byte("\ufeff")), "\x00 \t\r\n")
	if len(p.columns) == 1 && len(p.columns[0].path) == 0 {
		p.reading(p.columns[0].input, plainValue(text), from.at.UnixNano(), from)
		return
	}
	v, err := parseJSON(text)
	if err != nil {
		p.refuse(grid.Malformed, fmt.Sprintf("%s: %v", shorten(string(text)), err), from.where)
		return
	}
	p.value(v, from)
}

// value reads a payload that was parsed.
func (p *payloads) value(v any, from payloadMeta) {
	at := from.at.UnixNano()
	if len(p.clock.path) > 0 {
		written, found := p.clock.path.in(v)
		text := strings.TrimSpace(fmt.Sprint(written))
		var err error
		if at, err = p.clock.parse(text); !found {
			p.refuse(grid.BadTime, fmt.Sprintf("no time found at the path %s", shorten(p.clock.path.dotted())),
				from.where)
			return
		} else if err != nil {
			p.refuse(grid.BadTime, fmt.Sprintf("%s is not a time %s%s", shorten(text), p.clock.example(),
				p.clock.formatAdvice(text)), from.where)
			return
		}
	}
	if len(p.columns) == 0 {
		p.members(v, at, from)
		return
	}
	for _, c := range p.columns {
		value, _ := c.path.in(v)
		p.reading(c.input, value, at, from)
	}
}

// members reads each member of an object as an input. It skips the time, and members that contain objects or lists.
func (p *payloads) members(v any, at int64, from payloadMeta) {
	object, _ := v.(map[string]any)
	for name, value := range object {
		switch value.(type) {
		case map[string]any, []any, nil:
			continue
		}
		if len(p.clock.path) == 1 && p.clock.path[0] == name || len(name) > maxText || !p.log.knows(name) {
			continue
		}
		p.reading(name, value, at, from)
	}
}

// refuse counts a payload of which nothing can be used.
func (p *payloads) refuse(why Reason, problem, where string) {
	for _, c := range p.columns {
		p.log.unused(c.input, why, problem, where)
	}
	if len(p.columns) == 0 {
		p.log.unused("", why, problem, where)
	}
}

// reading records a value, or counts the reason for which it is rejected. A text such as NA is recorded although it
// means a missing value: the task may have a class with this name.
func (p *payloads) reading(input string, value any, at int64, from payloadMeta) {
	r, why := Reading{Input: input, Time: at, Source: from.source}, Reason("")
	switch v := value.(type) {
	case json.Number:
		number, err := strconv.ParseFloat(string(v), 64)
		if r.Value = number; err != nil || !finite(number) {
			why = grid.NotFinite
		}
	case bool:
		r.Text = strconv.FormatBool(v)
	case string:
		if r.Text = strings.TrimSpace(v); len(r.Text) > maxText {
			why = grid.NotANumber
		} else if r.Text == "" {
			why = grid.Missing
		}
	case nil:
		why = grid.Missing
	default:
		why = grid.NotANumber
	}
	if r.Text != "" {
		if r.Value = numberOf(r.Text); math.IsInf(r.Value, 0) {
			why = grid.NotFinite
		}
	}
	says := ""
	clockSet := from.at.UnixNano() >= leastTime // a clock before the year 2000 was never set
	switch {
	case why == grid.Missing:
		says = "the value is absent, null or empty"
	case why != "":
		says = problem(fmt.Sprint(value), why)
	case at < leastTime:
		why, says = grid.BadTime, fmt.Sprintf("%s is before the year 2000%s", moment(at), p.clock.unitAdvice(at))
	case clockSet && at > from.at.Add(futureMost).UnixNano():
		why, says = grid.Future, moment(at)+" is in the future according to the device's clock"
	}
	if why != "" {
		p.log.unused(input, why, says, from.where)
		return
	}
	p.log.used(r)
	p.put(r)
}

// plainValue is the value of a payload that is no JSON object: a number, or a text, which may have quotes.
func plainValue(text []byte) any {
	text = bytes.TrimSpace(text)
	if len(text) > 0 && (text[0] == '"' || text[0] == '{' || text[0] == '[') {
		if v, err := parseJSON(text); err == nil {
			return v
		}
	}
	return plainCell(string(text))
}

// plainCell is a number, or a text.
func plainCell(text string) any {
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseFloat(text, 64); err == nil && v == v || errors.Is(err, strconv.ErrRange) {
		return json.Number(text)
	}
	return text
}
