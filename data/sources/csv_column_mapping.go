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

// columnMapping contains the positions of the required columns in a header.
type columnMapping struct {
	fileName string
	filter   RowFilter
	header   []string
	// delimiter is the delimiter of the file, from its line sep= or from the configuration; 0 means the default.
	delimiter       rune
	wantedNames     []string // names of the features and, if any, the target; or names of the inputs
	columnIndexes   []int    // index of each name in the header; -1 for an input that is not in the file
	isTextColumn    []bool   // whether each column contains class texts; nil means that none does
	targetNameIndex int      // index of the target in wantedNames; -1 means none
	timeColumnIndex int      // index of the time column in the header; -1 means none
	rowConditions   rowConditions
	headerProblem   string // reason why the lines below this header cannot be used; empty if they can
}

// isHeaderRecord reports whether a record is a header. A header contains the name of the time column, and its time
// column contains no time. If the file has no time column, a header must contain the names of the first two required
// columns, or the name of the only required column.
func (t *columnMapping) isHeaderRecord(record []string) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(record, func(field string) bool {
			return len(field) >= len(name) && strings.TrimSpace(field) == name
		})
	}
	if name := t.filter.TimeColumn; name != "" {
		if !has(name) {
			return false
		}
		if t.timeColumnIndex < 0 || t.timeColumnIndex >= len(record) {
			return true
		}
		_, err := t.filter.dialect.timeFormat.parseTime(strings.TrimSpace(record[t.timeColumnIndex]))
		return err != nil
	}
	first := t.wantedNames[:min(2, len(t.wantedNames))]
	for _, name := range first {
		if !has(t.filter.dialect.fileColumnName(name)) {
			return false
		}
	}
	return len(first) > 0
}

// isPlausibleRecord reports whether a record has a time in the time column and, in each required column, a number, a
// class text or a missing value.
func (t *columnMapping) isPlausibleRecord(record []string) bool {
	if t.timeColumnIndex >= 0 {
		if _, err := t.filter.dialect.timeFormat.parseTime(strings.TrimSpace(record[t.timeColumnIndex])); err != nil {
			return false
		}
	}
	for i, column := range t.columnIndexes {
		if column < 0 || i < len(t.isTextColumn) && t.isTextColumn[i] {
			continue
		}
		if _, why := t.filter.dialect.parseNumber(strings.TrimSpace(record[column])); why == grid.ReasonNotANumber {
			return false
		}
	}
	return true
}

// rowConditions contains the texts that certain columns of a row must have.
type rowConditions []rowCondition

type rowCondition struct {
	columnIndex  int
	requiredText string
}

func (c rowConditions) matchRecord(record []string) bool {
	for _, one := range c {
		if strings.TrimSpace(record[one.columnIndex]) != one.requiredText {
			return false
		}
	}
	return true
}

// findWantedColumns returns the mapping of the required columns in a header. missing contains the columns that the
// header does not name exactly once; their index is -1. If allowTwice is true, the first of several columns with the
// same name is used.
func findWantedColumns(file string, header, names []string, filter RowFilter, allowTwice bool) (t *columnMapping,
	missing []missingColumn) {
	t = &columnMapping{fileName: file, filter: filter, header: header, wantedNames: names, targetNameIndex: -1,
		timeColumnIndex: -1}
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
		t.columnIndexes = append(t.columnIndexes, find(name, filter.dialect.fileColumnName(name), true))
	}
	if filter.TimeColumn != "" {
		t.timeColumnIndex = find(filter.TimeColumn, filter.TimeColumn, false)
	}
	for _, name := range slices.Sorted(maps.Keys(filter.RequiredTextByColumn)) {
		if at := find(name, name, false); at >= 0 {
			t.rowConditions = append(t.rowConditions, rowCondition{columnIndex: at,
				requiredText: filter.RequiredTextByColumn[name]})
		}
	}
	return t, missing
}

// missingColumn is a column that a header does not name exactly once.
type missingColumn struct {
	taskColumn   string // name of the column in the task
	fileColumn   string // name of the column in the file
	isTaskColumn bool   // whether the column is required, rather than the time column or a column of data.where
	isNamedTwice bool   // whether the header names it more than once
}

// missingColumnError returns the error for a missing or repeated column.
func (t *columnMapping) missingColumnError(m missingColumn) *data.FileError {
	e := &data.FileError{File: t.fileName, Line: 1, Column: m.fileColumn,
		Problem: "this column occurs twice in the header: rename one of the two columns"}
	if !m.isNamedTwice {
		e.Problem = "this column is missing; the file has the columns " + quoteNames(t.header) +
			t.filter.dialect.skipRowsHint(t.fileName, []string{m.fileColumn})
	}
	return e
}

// newColumnMapping returns the mapping for a file that contains rows. The header must name all required columns.
func newColumnMapping(file string, header, features []string, target string, filter RowFilter) (*columnMapping, error) {
	names := data.AppendTarget(features, target)
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if known[name] {
			return nil, &data.FileError{File: file, Line: 1, Column: name,
				Problem: "this column occurs twice in features and target"}
		}
		known[name] = true
	}
	t, missing := findWantedColumns(file, header, names, filter, false)
	if len(missing) > 0 {
		return nil, t.missingColumnError(missing[0])
	}
	if target != "" {
		t.targetNameIndex = len(features)
	}
	return t, nil
}

// csvCell is a cell of a required column with its value.
type csvCell struct {
	text      string            // text of the cell without surrounding spaces
	className string            // class text of an input with classes, unless it is a number
	value     float64           // finite number, or NaN if className is set
	why       data.UnusedReason // reason why the cell has no value
}

// readCell parses the cell of required column i. If classes is not empty, the column contains these class texts.
func (t *columnMapping) readCell(record []string, i int, classes []string) (c csvCell) {
	c.text = strings.TrimSpace(record[t.columnIndexes[i]])
	switch {
	case len(classes) == 0:
		c.value, c.why = t.filter.dialect.parseNumber(c.text)
	case c.text == "":
		c.why = grid.ReasonMissing
	default:
		// A text that is not a class may be a number in the notation of the file. With a decimal comma, 1,0 means the
		// class 1.
		c.className, c.value = c.text, math.NaN()
		if !slices.Contains(classes, c.text) {
			if v, why := t.filter.dialect.parseNumber(c.text); why == "" {
				c.className, c.value = "", v
			}
		}
	}
	return c
}

// checkNumber returns the reason for rejecting a number in required column i of a row, or "" if the number is valid.
func (t *columnMapping) checkNumber(i int, v float64, labels *rows.TargetFilter) data.UnusedReason {
	switch {
	case grid.IsOutsideRange(v, t.filter.deviceInputs[t.wantedNames[i]].ValidRange):
		return grid.ReasonOutOfRange
	case i == t.targetNameIndex && !labels.Accept(v):
		return grid.ReasonUnknownClass
	}
	return ""
}

// addRow appends a row, or counts the reason why it is unusable. number is the sequence number of the line.
func (b *rowBatch[T]) addRow(t *columnMapping, record []string, line int, number int64) error {
	at, bad := b.parseRowTime(t, record, line)
	if bad == nil && b.order != nil {
		bad = b.checkRowTimeOrder(t, record, line, at, number)
	}
	if bad == nil {
		b.columnCounts[len(t.columnIndexes)].countUsedCell()
	}
	x := len(b.x)
	if bad == nil {
		bad = b.appendRowCells(t, record, line, at)
	}
	if bad == nil {
		y := T(0)
		if t.targetNameIndex >= 0 {
			last := len(b.x) - 1
			b.x, y = b.x[:last], b.x[last]
		}
		b.y = append(b.y, y)
		if t.timeColumnIndex >= 0 {
			b.times = append(b.times, at)
		}
		b.used++
		b.recentUnusableShare.CountValue(false)
		return nil
	}
	b.x = b.x[:x]
	if b.countUnusableRow(bad); t.filter.failsOnUnusableRow() {
		return bad
	}
	return nil
}

// checkRowTimeOrder returns an error if the row is late or its time is an outlier.
func (b *rowBatch[T]) checkRowTimeOrder(t *columnMapping, record []string, line int, at, number int64) *data.FileError {
	text := strings.TrimSpace(record[t.timeColumnIndex])
	why := b.order.RejectReason(at, number)
	if why == "" {
		b.newestRowTime = max(b.newestRowTime, at)
		return nil
	}
	b.columnCounts[len(t.columnIndexes)].countRejectedCell(rejectedCell{t.fileName, line, text, why})
	return &data.FileError{File: t.fileName, Line: line, Column: t.filter.TimeColumn,
		Problem:    data.DescribeCellProblem(text, why),
		ReasonCode: string(why)}
}

// appendRowCells appends the cells of a row, including the target. It returns the first problem that makes the row
// unusable.
func (b *rowBatch[T]) appendRowCells(t *columnMapping, record []string, line int, at int64) (bad *data.FileError) {
	for i := range t.columnIndexes {
		cell, c := t.readCell(record, i, nil), &b.columnCounts[i]
		v := cell.value
		x, why := convertNumber[T](v, cell.why)
		if why == "" {
			why = t.checkNumber(i, v, &b.targetFilter)
		}
		if why == "" {
			c.addValue(v, at)
			b.x = append(b.x, x)
			continue
		}
		c.countRejectedCell(rejectedCell{t.fileName, line, cell.text, why})
		filled := false
		if i != t.targetNameIndex { // missing targets are never replaced
			v, filled = c.fillValue(t.filter.missingFill, at)
		}
		if !filled && bad == nil {
			bad = &data.FileError{File: t.fileName, Line: line,
				Column:  t.filter.dialect.fileColumnName(t.wantedNames[i]),
				Problem: data.DescribeCellProblem(cell.text, why), ReasonCode: string(why)}
		}
		b.x = append(b.x, T(v))
	}
	return bad
}

// parseRowTime returns the time of a row, or 0 if rows have no time.
func (y *csvReadCounts) parseRowTime(t *columnMapping, record []string, line int) (int64, *data.FileError) {
	if t.timeColumnIndex < 0 {
		return 0, nil
	}
	text := strings.TrimSpace(record[t.timeColumnIndex])
	at, err := t.filter.dialect.timeFormat.parseTime(text)
	if err == nil {
		return at, nil
	}
	y.columnCounts[len(t.columnIndexes)].countRejectedCell(rejectedCell{t.fileName, line, text, grid.ReasonBadTime})
	return 0, &data.FileError{File: t.fileName, Line: line, Column: t.filter.TimeColumn,
		ReasonCode: string(grid.ReasonBadTime),
		Problem:    data.QuoteForMessage(text) + " is not a time " + t.filter.dialect.timeFormat.exampleTime()}
}

// convertNumber converts v to T. It returns why, or ReasonNotFinite if v is too large for T.
func convertNumber[T learner.Float](v float64, why data.UnusedReason) (T, data.UnusedReason) {
	x := T(v)
	if why == "" && !data.IsFinite(float64(x)) {
		why = grid.ReasonNotFinite
	}
	return x, why
}

// quoteNames quotes column names for a message. It shortens long lists.
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
