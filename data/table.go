package data

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
)

// table says where the wanted columns are.
type table struct {
	file    string
	filter  Filter
	width   int
	names   []string // of the features, then the target if there is one
	columns []int    // their places
	target  int      // which of them is the target; -1 = none
	time    int      // the place of the time; -1 = there is none
	where   conditions
}

// conditions are the texts that columns of a row must have.
type conditions []condition

type condition struct {
	column int
	value  string
}

func (c conditions) match(record []string) bool {
	for _, one := range c {
		if strings.TrimSpace(record[one.column]) != one.value {
			return false
		}
	}
	return true
}

func newTable(file string, header, features []string, target string, filter Filter) (*table, error) {
	fail := func(column, problem string) error {
		return &Error{File: file, Line: 1, Column: column, Problem: problem}
	}
	places := make(map[string][]int, len(header))
	for i, name := range header {
		places[name] = append(places[name], i)
	}
	find := func(column string) (int, error) {
		switch at := places[column]; len(at) {
		case 0:
			return 0, fail(column, "missing; the columns are "+list(header))
		case 1:
			return at[0], nil
		}
		return 0, fail(column, "twice in the header")
	}
	t := &table{file: file, filter: filter, time: -1, width: len(header), names: withTarget(features, target),
		target: -1}
	if target != "" {
		t.target = len(features)
	}
	asked := make(map[string]bool, len(t.names))
	for _, name := range t.names {
		if asked[name] {
			return nil, fail(name, "asked for twice among features and target")
		}
		asked[name] = true
		at, err := find(filter.dialect.named(name))
		if err != nil {
			return nil, err
		}
		t.columns = append(t.columns, at)
	}
	if filter.Time != "" {
		at, err := find(filter.Time)
		if err != nil {
			return nil, err
		}
		t.time = at
	}
	conditions := sortedKeys(filter.Where) // the same one of two missing columns is reported every time
	for _, column := range conditions {
		at, err := find(column)
		if err != nil {
			return nil, err
		}
		t.where = append(t.where, condition{column: at, value: filter.Where[column]})
	}
	return t, nil
}

// add appends a row, or counts why it cannot be used.
func (b *batch[T]) add(t *table, record []string, line int) error {
	at, bad := b.time(t, record, line)
	x := len(b.x)
	if bad == nil {
		bad = b.numbers(t, record, line, at)
	}
	if bad == nil {
		y := T(0)
		if t.target >= 0 {
			last := len(b.x) - 1
			b.x, y = b.x[:last], b.x[last]
		}
		b.y = append(b.y, y)
		if t.time >= 0 {
			b.times = append(b.times, at)
		}
		b.used++
		b.recent.Take(false)
		return nil
	}
	b.x = b.x[:x]
	b.bad++
	b.recent.Take(true)
	b.last = bad
	if p := t.filter.missing.Policy; p == "" || p == grid.Refuse {
		return bad
	}
	return nil
}

// numbers appends the cells of a row, the target too. It returns the first problem that keeps the row from being used.
func (b *batch[T]) numbers(t *table, record []string, line int, at int64) (bad *Error) {
	for i, column := range t.columns {
		text, c := strings.TrimSpace(record[column]), &b.cells[i]
		v, why := t.filter.dialect.number(text)
		x, why := held[T](v, why)
		if why == "" {
			c.take(v, at)
			b.x = append(b.x, x)
			continue
		}
		c.drop(why, line)
		filled := false
		if i != t.target { // a target is never made up
			v, filled = c.fill(t.filter.missing, at)
		}
		if !filled && bad == nil {
			bad = &Error{File: t.file, Line: line, Column: t.filter.dialect.named(t.names[i]),
				Problem: problem(text, why), Reason: string(why)}
		}
		b.x = append(b.x, T(v))
	}
	return bad
}

// time reads the time of a row. It is 0 if rows have none.
func (b *batch[T]) time(t *table, record []string, line int) (int64, *Error) {
	if t.time < 0 {
		return 0, nil
	}
	text := strings.TrimSpace(record[t.time])
	at, err := t.filter.dialect.time.parse(text)
	problem, why := "", grid.BadTime
	switch {
	case err != nil:
		problem = shorten(text) + " is not a time " + t.filter.dialect.time.example()
	case at < b.newest:
		problem, why = shorten(text)+" is before the time of a row above: rows must be in the order of time", grid.Late
	}
	if problem != "" {
		b.cells[len(t.columns)].drop(why, line)
		return 0, &Error{File: t.file, Line: line, Column: t.filter.Time, Problem: problem, Reason: string(why)}
	}
	b.newest = at
	return at, nil
}

// parseTime reads a time, in nanoseconds since 1970, from there up to 2261.
func parseTime(text string) (int64, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return parseSince(text, time.Second)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err == nil && (at.Unix() < 0 || at.Year() > 2261) {
		err = strconv.ErrRange
	}
	return at.UnixNano(), err
}

func finite(v float64) bool { return v-v == 0 }

// held returns a number as T has it, and why it cannot be used: why, or that it is too large for T.
func held[T learner.Float](v float64, why Reason) (T, Reason) {
	x := T(v)
	if why == "" && !finite(float64(x)) {
		why = grid.NotFinite
	}
	return x, why
}

// shorten quotes the text of a cell for a message.
func shorten(text string) string {
	const most = 32
	if runes := []rune(text); len(runes) > most {
		return strconv.Quote(string(runes[:most])) + "…"
	}
	return strconv.Quote(text)
}

// list quotes column names for a message, not more than fit on a screen.
func list(names []string) string {
	const most = 32
	quoted := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		quoted = append(quoted, shorten(name))
	}
	text := strings.Join(quoted, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
