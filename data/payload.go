package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// parseJSON reads one JSON value. Numbers stay as they were written.
func parseJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("something is behind the value")
	}
	return v, nil
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

// take reads a payload that has arrived from somewhere.
func (p *payloads) take(text []byte, where string, arrived time.Time) {
	if len(p.columns) == 1 && len(p.columns[0].path) == 0 {
		p.reading(p.columns[0].input, plainValue(text), arrived.UnixNano(), arrived, where)
		return
	}
	v, err := parseJSON(text)
	if err != nil {
		p.refuse(grid.Malformed, where)
		return
	}
	p.value(v, where, arrived)
}

// value reads a payload that was parsed.
func (p *payloads) value(v any, where string, arrived time.Time) {
	at := arrived.UnixNano()
	if len(p.clock.path) > 0 {
		written, _ := p.clock.path.in(v)
		var err error
		if at, err = p.clock.parse(strings.TrimSpace(fmt.Sprint(written))); err != nil {
			p.refuse(grid.BadTime, where)
			return
		}
	}
	if len(p.columns) == 0 {
		p.members(v, at, arrived, where)
		return
	}
	for _, c := range p.columns {
		value, _ := c.path.in(v)
		p.reading(c.input, value, at, arrived, where)
	}
}

// members takes each member of an object for an input, but for the time, and for those that hold more.
func (p *payloads) members(v any, at int64, arrived time.Time, where string) {
	object, _ := v.(map[string]any)
	for name, value := range object {
		switch value.(type) {
		case map[string]any, []any, nil:
			continue
		}
		if len(p.clock.path) == 1 && p.clock.path[0] == name || len(name) > maxText || !p.log.knows(name) {
			continue
		}
		p.reading(name, value, at, arrived, where)
	}
}

// refuse counts a payload of which nothing can be used.
func (p *payloads) refuse(why Reason, where string) {
	for _, c := range p.columns {
		p.log.unused(c.input, why, where)
	}
	if len(p.columns) == 0 {
		p.log.unused("", why, where)
	}
}

// reading records a value, or counts why it is not used.
func (p *payloads) reading(input string, value any, at int64, arrived time.Time, where string) {
	r, why := Reading{Input: input, Time: at}, Reason("")
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
	set := arrived.UnixNano() >= leastTime // else the device does not know the time
	switch {
	case why != "":
	case at < leastTime:
		why = grid.BadTime
	case set && at > arrived.Add(futureMost).UnixNano():
		why = grid.Future
	}
	if why != "" {
		p.log.unused(input, why, where)
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
	if _, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return json.Number(text)
	}
	return text
}
