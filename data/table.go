package data

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table says where the wanted columns are.
type table struct {
	file    string
	filter  Filter
	width   int
	names   []string // of the features, then the target
	columns []int    // their places
	time    int      // the place of the time; -1 = there is none
	where   []condition
}

type condition struct {
	column int
	value  string
}

func newTable(file string, header, features []string, target string, filter Filter) (*table, error) {
	fail := func(column, problem string) error {
		return &Error{File: file, Line: 1, Column: column, Problem: problem}
	}
	names := make([]string, len(header)) // a copy: the reader reuses the record
	places := make(map[string][]int, len(header))
	for i, name := range header {
		names[i] = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		places[names[i]] = append(places[names[i]], i)
	}
	find := func(column string) (int, error) {
		switch at := places[column]; len(at) {
		case 0:
			return 0, fail(column, "missing; the columns are "+list(names))
		case 1:
			return at[0], nil
		}
		return 0, fail(column, "twice in the header")
	}
	if len(features) == 0 {
		return nil, fail("", "no feature columns were asked for")
	}
	t := &table{file: file, filter: filter, time: -1, width: len(names), names: append(slices.Clone(features), target)}
	asked := make(map[string]bool, len(t.names))
	for _, name := range t.names {
		if asked[name] {
			return nil, fail(name, "asked for twice among features and target")
		}
		asked[name] = true
		at, err := find(name)
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
	conditions := make([]string, 0, len(filter.Where))
	for column := range filter.Where {
		conditions = append(conditions, column)
	}
	slices.Sort(conditions) // the same one of two missing columns is reported every time
	for _, column := range conditions {
		at, err := find(column)
		if err != nil {
			return nil, err
		}
		t.where = append(t.where, condition{column: at, value: filter.Where[column]})
	}
	return t, nil
}

func (t *table) matches(record []string) bool {
	for _, c := range t.where {
		if strings.TrimSpace(record[c.column]) != c.value {
			return false
		}
	}
	return true
}

// add appends a row.
func (b *batch[T]) add(t *table, record []string, line int) error {
	features := len(t.columns) - 1
	for i, column := range t.columns {
		text := strings.TrimSpace(record[column])
		v, err := strconv.ParseFloat(text, 64)
		problem := ""
		switch {
		case text == "":
			problem = "empty where a number is needed"
		case err == nil && !finite(v):
			problem = fmt.Sprintf("%q is not finite", text)
		case errors.Is(err, strconv.ErrRange), err == nil && !finite(float64(T(v))):
			problem = fmt.Sprintf("%s is too large", shorten(text))
		case err != nil:
			problem = fmt.Sprintf("%s is not a number", shorten(text))
		}
		if problem != "" {
			return &Error{File: t.file, Line: line, Column: t.names[i], Problem: problem}
		}
		if i < features {
			b.x = append(b.x, T(v))
		} else {
			b.y = append(b.y, T(v))
		}
	}
	if t.time < 0 {
		return nil
	}
	return b.addTime(t, record, line)
}

// addTime appends the time of a row.
func (b *batch[T]) addTime(t *table, record []string, line int) error {
	text := strings.TrimSpace(record[t.time])
	at, err := parseTime(text)
	problem := ""
	switch {
	case err != nil:
		problem = shorten(text) + " is not a time as 2026-03-01T12:00:00Z or in seconds since 1970"
	case at < b.newest:
		problem = shorten(text) + " is before the time of a row above: rows must be in the order of time"
	}
	if problem != "" {
		return &Error{File: t.file, Line: line, Column: t.filter.Time, Problem: problem}
	}
	b.times, b.newest = append(b.times, at), at
	return nil
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
