package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
)

// Filter selects rows of a file: those where each column named in Where has exactly that text, dealt one by one to so
// many Shares, and of these one Share, counted from 0. The zero value selects all rows.
type Filter struct {
	Where         map[string]string
	Share, Shares int // Shares 0 and 1 = all rows
	// Time, if set, is the column with the time of a row, as RFC 3339 or in seconds since 1970. Rows must be in its
	// order.
	Time string

	dialect dialect
	missing grid.Fill // the zero value refuses
}

// deals reports whether the nth row that has the texts of Where, from 1, is of the own share.
func (f *Filter) deals(n int) bool { return f.Shares <= 1 || (n-1)%f.Shares == f.Share }

// Error says what is wrong in a data file, and where.
type Error struct {
	File    string
	Line    int    // from 1; 0 = the whole file
	Column  string // "" = the whole line
	Problem string
	// Reason is why values of the column are not used, or, as a TroubleKind, why there are none; "" = another problem.
	Reason   string
	Bad, All uint64 // so many of so many values, or lines, are not used; 0 = that is not the problem
}

func (e *Error) Error() string {
	text := e.Problem
	if e.Column != "" {
		text = fmt.Sprintf("column %q: %s", e.Column, text)
	}
	if where := e.Where(); where != "" {
		text = where + ": " + text
	}
	return text
}

// Where names file and line.
func (e *Error) Where() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d", e.File, e.Line)
	}
	return e.File
}

// ReadCSV reads samples from comma-separated text with column names in its first line. file names the source in errors.
// features and target name columns; other columns, and rows that the filter leaves out, may hold any text. Numbers must
// be finite. It reads once, in order, and keeps nothing but the numbers selected. Bad data is an [*Error]; a failure
// of r is passed on, wrapped.
func ReadCSV[T learner.Float](r io.Reader, file string, features []string, target string,
	filter Filter) (*learner.Samples[T], error) {
	c := filter.dialect.reader(r, 0)
	t, err := readHeader(c, file, features, target, filter)
	if err != nil {
		return nil, err
	}
	some := batch[T]{tally: tally{}.begin(len(t.names))}
	if err := some.read(c, t, 0); err != nil {
		return nil, err
	}
	if len(some.y) == 0 {
		return nil, noneSelected(file, some.rows)
	}
	return learner.NewSamples(len(features), some.x, some.y), nil
}

func noneSelected(file string, rows int) *Error {
	return &Error{File: file, Problem: fmt.Sprintf("none of its %d rows is selected", rows)}
}

// readHeader reads the first line, and says where the wanted columns are.
func readHeader(c *records, file string, features []string, target string, filter Filter) (*table, error) {
	header, err := c.header(file)
	if err != nil {
		return nil, err
	}
	if len(features) == 0 {
		return nil, &Error{File: file, Line: 1, Problem: "no feature columns were asked for"}
	}
	return newTable(file, header, features, target, filter)
}

// batch is rows that are read together. The tally is of these and of those before.
type batch[T learner.Float] struct {
	tally
	x, y  []T
	times []int64 // with a column for them
}

// read reads rows up to the end. above is the number of lines above the first one that c reads.
func (b *batch[T]) read(c *records, t *table, above int) error {
	return b.each(c, t, above, func(record []string, line int) error { return b.add(t, record, line) })
}

// readError turns what encoding/csv refuses into an Error; what is left is a failure to read.
func readError(file string, err error, record []string, width, above int) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, csv.ErrFieldCount) && errors.As(err, &parse):
		problem := fmt.Sprintf("%d fields where the header has %d", len(record), width)
		return &Error{File: file, Line: above + parse.Line, Problem: problem}
	case errors.As(err, &parse):
		return &Error{File: file, Line: above + parse.Line, Problem: parse.Err.Error()}
	}
	return fmt.Errorf("%s: %w", file, err)
}
