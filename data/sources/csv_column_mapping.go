package sources

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/learner"
)

// columnMapping says where the wanted columns are.
type columnMapping struct {
	file   string
	filter RowFilter
	header []string
	// delimiter of the file, from its line sep= or from the configuration; 0 = the default
	delimiter     rune
	names         []string // of the features, then of the target if any; or of the inputs
	columns       []int    // index of each name in the header; -1 = an input that the file does not have
	isTextColumn  []bool   // whether each column contains the texts of classes; nil = none does
	target        int      // which of them is the target; -1 = none
	time          int      // the place of the time; -1 = there is none
	where         rowConditions
	headerProblem string // why the lines below this header cannot be used; empty = they can
}

// isHeader reports whether a record is a header: it contains the name of the time column, and no time in this column.
// Without a time column, it contains the names of the first two wanted columns, or of the only one.
func (t *columnMapping) isHeader(record []string) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(record, func(field string) bool {
			return len(field) >= len(name) && strings.TrimSpace(field) == name
		})
	}
	if name := t.filter.TimeColumn; name != "" {
		if !has(name) {
			return false
		}
		if t.time < 0 || t.time >= len(record) {
			return true
		}
		_, err := t.filter.dialect.time.parse(strings.TrimSpace(record[t.time]))
		return err != nil
	}
	first := t.names[:min(2, len(t.names))]
	for _, name := range first {
		if !has(t.filter.dialect.fileColumnName(name)) {
			return false
		}
	}
	return len(first) > 0
}

// isPlausible reports whether a record has a time in the time column, and in each wanted column a number, the text of a
// class, or a missing value.
func (t *columnMapping) isPlausible(record []string) bool {
	if t.time >= 0 {
		if _, err := t.filter.dialect.time.parse(strings.TrimSpace(record[t.time])); err != nil {
			return false
		}
	}
	for i, column := range t.columns {
		if column < 0 || i < len(t.isTextColumn) && t.isTextColumn[i] {
			continue
		}
		if _, why := t.filter.dialect.parseNumber(strings.TrimSpace(record[column])); why == grid.ReasonNotANumber {
			return false
		}
	}
	return true
}

// rowConditions are the texts that columns of a row must have.
type rowConditions []rowCondition

type rowCondition struct {
	column int
	value  string
}

func (c rowConditions) match(record []string) bool {
	for _, one := range c {
		if strings.TrimSpace(record[one.column]) != one.value {
			return false
		}
	}
	return true
}

// findColumns returns a table with the places of the wanted columns in a header. missing contains the columns that the
// header does not name exactly once. Their place in the table is -1. With allowTwice, the first of several columns with
// the same name is found.
func findColumns(file string, header, names []string, filter RowFilter, allowTwice bool) (t *columnMapping,
	missing []missingColumn) {
	t = &columnMapping{file: file, filter: filter, header: header, names: names, target: -1, time: -1}
	find := func(column, name string, wanted bool) int {
		at := slices.Index(header, name)
		twice := at >= 0 && !allowTwice && slices.Contains(header[at+1:], name)
		if at < 0 || twice {
			missing = append(missing, missingColumn{column, name, wanted, twice})
			return -1
		}
		return at
	}
	for _, name := range names {
		t.columns = append(t.columns, find(name, filter.dialect.fileColumnName(name), true))
	}
	if filter.TimeColumn != "" {
		t.time = find(filter.TimeColumn, filter.TimeColumn, false)
	}
	for _, name := range slices.Sorted(maps.Keys(filter.RequiredTextByColumn)) {
		if at := find(name, name, false); at >= 0 {
			t.where = append(t.where, rowCondition{column: at, value: filter.RequiredTextByColumn[name]})
		}
	}
	return t, missing
}

// missingColumn is a column that a header does not name exactly once.
type missingColumn struct {
	taskColumn   string // its name in the task
	fileColumn   string // its name in the file
	isTaskColumn bool   // it is one of the wanted columns, and not the time or a column of data.where
	isNamedTwice bool   // the header names it more than once
}

// missingError returns the error for a column that the header does not name exactly once.
func (t *columnMapping) missingError(m missingColumn) *data.FileError {
	e := &data.FileError{File: t.file, Line: 1, Column: m.fileColumn,
		Problem: "twice in the header: rename one of them"}
	if !m.isNamedTwice {
		e.Problem = "missing; the columns are " + quoteNames(t.header) +
			t.filter.dialect.skipRowsHint(t.file, []string{m.fileColumn})
	}
	return e
}

// newColumnMapping returns the table of a file with rows. All wanted columns must be in the header.
func newColumnMapping(file string, header, features []string, target string, filter RowFilter) (*columnMapping, error) {
	names := data.AppendTarget(features, target)
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if known[name] {
			return nil, &data.FileError{File: file, Line: 1, Column: name,
				Problem: "asked for twice among features and target"}
		}
		known[name] = true
	}
	t, missing := findColumns(file, header, names, filter, false)
	if len(missing) > 0 {
		return nil, t.missingError(missing[0])
	}
	if target != "" {
		t.target = len(features)
	}
	return t, nil
}

// cell is a cell of a wanted column, and its value.
type cell struct {
	text  string            // without surrounding space
	class string            // text of an input with classes, if it is not a number
	value float64           // finite, or NaN with a class
	why   data.UnusedReason // why there is no value
}

// cell returns the cell of the wanted column i. If classes is not empty, the column contains the texts of these
// classes.
func (t *columnMapping) cell(record []string, i int, classes []string) (c cell) {
	c.text = strings.TrimSpace(record[t.columns[i]])
	switch {
	case len(classes) == 0:
		c.value, c.why = t.filter.dialect.parseNumber(c.text)
	case c.text == "":
		c.why = grid.ReasonMissing
	default:
		// a text that is none of the classes may be a number in the notation of the file: with a decimal comma, 1,0 is
		// the class 1
		c.class, c.value = c.text, math.NaN()
		if !slices.Contains(classes, c.text) {
			if v, why := t.filter.dialect.parseNumber(c.text); why == "" {
				c.class, c.value = "", v
			}
		}
	}
	return c
}

// checkNumber returns why a number in the wanted column i of a row is not used.
func (t *columnMapping) checkNumber(i int, v float64, labels *rows.TargetFilter) data.UnusedReason {
	switch {
	case grid.IsOutsideRange(v, t.filter.ranges[t.names[i]]):
		return grid.ReasonOutOfRange
	case i == t.target && !labels.Accept(v):
		return grid.ReasonUnknownClass
	}
	return ""
}

// add appends a row, or counts the reason why it is unusable. number is the result of readPosition.number for the line.
func (b *rowBatch[T]) add(t *columnMapping, record []string, line int, number int64) error {
	at, bad := b.parseRowTime(t, record, line)
	if bad == nil && b.order != nil {
		bad = b.checkTimeOrder(t, record, line, at, number)
	}
	if bad == nil {
		b.columnCounts[len(t.columns)].countUsed()
	}
	x := len(b.x)
	if bad == nil {
		bad = b.appendNumbers(t, record, line, at)
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
		b.recent.CountValue(false)
		return nil
	}
	b.x = b.x[:x]
	if b.countUnusable(bad); t.filter.failsOnBadRow() {
		return bad
	}
	return nil
}

// checkTimeOrder returns an error if the row is late or its time is an outlier.
func (b *rowBatch[T]) checkTimeOrder(t *columnMapping, record []string, line int, at, number int64) *data.FileError {
	text := strings.TrimSpace(record[t.time])
	why := b.order.RejectReason(at, number)
	if why == "" {
		b.newestRowTime = max(b.newestRowTime, at)
		return nil
	}
	b.columnCounts[len(t.columns)].countRejected(rejectedCell{t.file, line, text, why})
	return &data.FileError{File: t.file, Line: line, Column: t.filter.TimeColumn,
		Problem:    data.DescribeCellProblem(text, why),
		ReasonCode: string(why)}
}

// appendNumbers appends the cells of a row, the target too. It returns the first problem that keeps the row from being
// used.
func (b *rowBatch[T]) appendNumbers(t *columnMapping, record []string, line int, at int64) (bad *data.FileError) {
	for i := range t.columns {
		cell, c := t.cell(record, i, nil), &b.columnCounts[i]
		v := cell.value
		x, why := convertNumber[T](v, cell.why)
		if why == "" {
			why = t.checkNumber(i, v, &b.labels)
		}
		if why == "" {
			c.addValue(v, at)
			b.x = append(b.x, x)
			continue
		}
		c.countRejected(rejectedCell{t.file, line, cell.text, why})
		filled := false
		if i != t.target { // a target is never made up
			v, filled = c.fillValue(t.filter.missing, at)
		}
		if !filled && bad == nil {
			bad = &data.FileError{File: t.file, Line: line, Column: t.filter.dialect.fileColumnName(t.names[i]),
				Problem: data.DescribeCellProblem(cell.text, why), ReasonCode: string(why)}
		}
		b.x = append(b.x, T(v))
	}
	return bad
}

// parseRowTime reads the time of a row. It is 0 if rows have none.
func (y *readState) parseRowTime(t *columnMapping, record []string, line int) (int64, *data.FileError) {
	if t.time < 0 {
		return 0, nil
	}
	text := strings.TrimSpace(record[t.time])
	at, err := t.filter.dialect.time.parse(text)
	if err == nil {
		return at, nil
	}
	y.columnCounts[len(t.columns)].countRejected(rejectedCell{t.file, line, text, grid.ReasonBadTime})
	return 0, &data.FileError{File: t.file, Line: line, Column: t.filter.TimeColumn,
		ReasonCode: string(grid.ReasonBadTime),
		Problem:    data.QuoteForMessage(text) + " is not a time " + t.filter.dialect.time.example()}
}

// convertNumber returns a number as T has it, and why it cannot be used: why, or that it is too large for T.
func convertNumber[T learner.Float](v float64, why data.UnusedReason) (T, data.UnusedReason) {
	x := T(v)
	if why == "" && !data.IsFinite(float64(x)) {
		why = grid.ReasonNotFinite
	}
	return x, why
}

// quoteNames quotes column names for a message, not more than fit on a screen.
func quoteNames(names []string) string {
	const most = 32
	quoted := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		quoted = append(quoted, data.QuoteForMessage(name))
	}
	text := strings.Join(quoted, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
