package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
)

// jsonPath is the path of a value in JSON. It consists of member names and element indices, counted from 0. The empty
// path is the whole value.
type jsonPath []string

// parseJSONPath parses a path whose names and indices are separated by dots, such as sensors.0.value. A backslash
// escapes a dot or a backslash in a name. The syntax is a subset of GJSON, which telegraf also uses.
func parseJSONPath(text string) (jsonPath, error) {
	if text == "" {
		return nil, nil
	}
	var p jsonPath
	var name strings.Builder
	escaped := false
	for _, c := range text {
		switch {
		case escaped && c != '.' && c != '\\':
			return nil, fmt.Errorf(`path %s: a backslash is only allowed before a dot or a backslash`,
				data.QuoteForMessage(text))
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
		return nil, fmt.Errorf("path %s: must not end with a backslash", data.QuoteForMessage(text))
	}
	p = append(p, name.String())
	for _, name := range p {
		if name == "" {
			return nil, fmt.Errorf("path %s: contains an empty name", data.QuoteForMessage(text))
		}
	}
	return p, nil
}

// dottedText returns the path as text in the syntax of parseJSONPath.
func (p jsonPath) dottedText() string {
	escape := strings.NewReplacer(`\`, `\\`, `.`, `\.`)
	names := make([]string, len(p))
	for i, name := range p {
		names[i] = escape.Replace(name)
	}
	return strings.Join(names, ".")
}

// valueIn returns the value at the path, and false if it does not exist.
func (p jsonPath) valueIn(v any) (any, bool) {
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

// payloadColumn defines the position of an input's value in a payload.
type payloadColumn struct {
	input string
	path  jsonPath
}

// payloadTimeField defines the position and the format of the time in a payload.
type payloadTimeField struct {
	path jsonPath // empty means the time of arrival
	timeFormat
}

// payloadParser converts payloads to readings.
type payloadParser struct {
	columns    []payloadColumn // empty means that each member of a JSON object is an input with its name
	timeField  payloadTimeField
	addReading func(data.Reading)
	stats      *sourceStats
}

// payloadMeta describes the origin and the arrival of a payload.
type payloadMeta struct {
	place      string    // topic or line number, for error messages
	sourceHash uint64    // Source value of the readings
	receivedAt time.Time // time of arrival
}

// parsePayload parses a payload and records its readings. It ignores a byte order mark, and white space and NUL bytes
// at both ends. Programs in C often send a final NUL byte.
func (p *payloadParser) parsePayload(text []byte, from payloadMeta) {
	text = trimPayload(text)
	if len(p.columns) == 1 && len(p.columns[0].path) == 0 {
		p.addValue(p.columns[0].input, parsePlainPayload(text), from.receivedAt.UnixNano(), from)
		return
	}
	v, err := parseJSON(text)
	if err != nil {
		p.rejectPayload(grid.ReasonMalformed, err.Error(), from.place)
		return
	}
	p.addParsedPayload(v, from)
}

// trimPayload removes a byte order mark, and white space and NUL bytes at both ends.
func trimPayload(text []byte) []byte { return bytes.Trim(text, "\ufeff\x00 \t\r\n") }

// addParsedPayload records the readings of a parsed payload.
func (p *payloadParser) addParsedPayload(v any, from payloadMeta) {
	at := from.receivedAt.UnixNano()
	if len(p.timeField.path) > 0 {
		written, found := p.timeField.path.valueIn(v)
		text := strings.TrimSpace(jsonValueText(written))
		var err error
		if at, err = p.timeField.parseTime(text); !found {
			p.rejectPayload(grid.ReasonBadTime, fmt.Sprintf("no time found at the path %s",
				data.QuoteForMessage(p.timeField.path.dottedText())),
				from.place)
			return
		} else if err != nil {
			shown := data.QuoteForMessage(text)
			if written == nil {
				shown = "null"
			}
			p.rejectPayload(grid.ReasonBadTime, fmt.Sprintf("%s is not a time %s%s", shown, p.timeField.exampleTime(),
				p.timeField.formatAdvice(text)), from.place)
			return
		}
	}
	if len(p.columns) == 0 {
		p.addObjectMembers(v, at, from)
		return
	}
	for _, c := range p.columns {
		value, _ := c.path.valueIn(v)
		p.addValue(c.input, value, at, from)
	}
}

// addObjectMembers records each member of an object as an input. It skips the time, and members that contain objects or
// lists.
func (p *payloadParser) addObjectMembers(v any, at int64, from payloadMeta) {
	object, _ := v.(map[string]any)
	for name, value := range object {
		switch value.(type) {
		case map[string]any, []any, nil:
			continue
		}
		if len(p.timeField.path) == 1 && p.timeField.path[0] == name || len(name) > maxTextBytes ||
			!p.stats.mayCountInput(name) {
			continue
		}
		p.addValue(name, value, at, from)
	}
}

// rejectPayload counts a payload that cannot be used.
func (p *payloadParser) rejectPayload(why data.UnusedReason, problem, where string) {
	for _, c := range p.columns {
		p.stats.countUnusedValue(c.input, why, problem, where)
	}
	if len(p.columns) == 0 {
		p.stats.countUnusedValue("", why, problem, where)
	}
}

// addValue records a value, or counts the reason for rejecting it. A text such as NA is recorded although it means a
// missing value, because the task may have a class with this name.
func (p *payloadParser) addValue(input string, value any, at int64, from payloadMeta) {
	r, why := data.Reading{Input: input, Time: at, Source: from.sourceHash}, data.UnusedReason("")
	switch v := value.(type) {
	case json.Number:
		number, err := strconv.ParseFloat(string(v), 64)
		if r.Value = number; err != nil || !data.IsFinite(number) {
			why = grid.ReasonNotFinite
		}
	case bool:
		r.Text = strconv.FormatBool(v)
	case string:
		if r.Text = strings.TrimSpace(v); len(r.Text) > maxTextBytes {
			why = grid.ReasonNotANumber
		} else if r.Text == "" {
			why = grid.ReasonMissing
		}
	case nil:
		why = grid.ReasonMissing
	default:
		why = grid.ReasonNotANumber
	}
	if r.Text != "" {
		if r.Value = numberFromText(r.Text); math.IsInf(r.Value, 0) {
			why = grid.ReasonNotFinite
		}
	}
	says := ""
	clockSet := from.receivedAt.UnixNano() >= rows.MinReadingTime // a clock before the year 2000 was never set
	switch {
	case why == grid.ReasonMissing:
		says = "the value is absent, null or empty"
	case why != "":
		says = data.DescribeCellProblem(jsonValueText(value), why)
	case at < rows.MinReadingTime:
		why, says = grid.ReasonBadTime, fmt.Sprintf("%s is before the year 2000%s", rows.FormatTime(at),
			p.timeField.unitAdvice(at))
	case clockSet && at > from.receivedAt.Add(rows.MaxFutureSkew).UnixNano():
		why, says = grid.ReasonFutureTime, rows.FormatTime(at)+" is in the future according to the device's clock"
	}
	if why != "" {
		p.stats.countUnusedValue(input, why, says, from.place)
		return
	}
	p.stats.countUsedReading(r)
	p.addReading(r)
}

// parsePlainPayload returns the value of a payload that is not a JSON object: a number or a text, possibly in quotes.
func parsePlainPayload(text []byte) any {
	text = bytes.TrimSpace(text)
	if len(text) > 0 && (text[0] == '"' || text[0] == '{' || text[0] == '[') {
		if v, err := parseJSON(text); err == nil {
			return v
		}
	}
	return parseNumberOrText(string(text))
}

// parseNumberOrText returns a json.Number if text is a number, otherwise the trimmed text.
func parseNumberOrText(text string) any {
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseFloat(text, 64); err == nil && v == v || errors.Is(err, strconv.ErrRange) {
		return json.Number(text)
	}
	return text
}
