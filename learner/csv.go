package learner

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

// Filter selects rows of a file: those where each column named in Where has exactly that text, dealt one by one to so
// many Shares, and of these one Share, counted from 0. The zero value selects all rows.
type Filter struct {
	Where         map[string]string
	Share, Shares int // Shares 0 and 1 = all rows
}

// DataError says what is wrong in a data file, and where.
type DataError struct {
	File    string
	Line    int    // from 1; 0 = the whole file
	Column  string // "" = the whole line
	Problem string
}

func (e *DataError) Error() string {
	where := e.File
	if e.Line > 0 {
		where += fmt.Sprintf(": line %d", e.Line)
	}
	if e.Column != "" {
		where += fmt.Sprintf(": column %q", e.Column)
	}
	return where + ": " + e.Problem
}

// ReadCSV reads samples from comma-separated text with column names in its first line. file names the source in errors.
// features and target name columns; other columns, and rows that the filter leaves out, may hold any text. Numbers must
// be finite. It reads once, in order, and keeps nothing but the numbers selected. Bad data is a [*DataError]; a failure
// of r is passed on, wrapped.
func ReadCSV[T Float](r io.Reader, file string, features []string, target string, filter Filter) (*Samples[T], error) {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, &DataError{File: file, Problem: "empty; the first line must name the columns"}
	}
	if err != nil {
		return nil, readError(file, err, nil, 0)
	}
	t, err := newTable(file, header, features, target, filter)
	if err != nil {
		return nil, err
	}
	s := &Samples[T]{inputs: len(features)}
	rows, matched := 0, 0
	for {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readError(file, err, record, t.width)
		}
		rows++
		if !t.matches(record) {
			continue
		}
		matched++
		if filter.Shares > 1 && (matched-1)%filter.Shares != filter.Share {
			continue
		}
		line, _ := c.FieldPos(0)
		if err := appendRow(s, t, record, line); err != nil {
			return nil, err
		}
	}
	if s.Len() == 0 {
		return nil, &DataError{File: file, Problem: fmt.Sprintf("none of its %d rows is selected", rows)}
	}
	return s, nil
}

// readError turns what encoding/csv refuses into a DataError; what is left is a failure to read.
func readError(file string, err error, record []string, width int) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, csv.ErrFieldCount) && errors.As(err, &parse):
		problem := fmt.Sprintf("%d fields where the header has %d", len(record), width)
		return &DataError{File: file, Line: parse.Line, Problem: problem}
	case errors.As(err, &parse):
		return &DataError{File: file, Line: parse.Line, Problem: parse.Err.Error()}
	}
	return fmt.Errorf("%s: %w", file, err)
}
