package sources

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
)

// RowFilter selects rows of a file by the required texts of columns. The selected rows are divided one by one among
// ShareCount shares, and only the share ShareIndex, counted from 0, is used. The zero value selects all rows.
type RowFilter struct {
	RequiredTextByColumn   map[string]string
	ShareIndex, ShareCount int // index of the share and number of shares; ShareCount 0 or 1 means all rows
	// TimeColumn, if set, is the column with the time of a row. Rows must be in order of time.
	TimeColumn string

	dialect      csvDialect
	deviceInputs map[string]grid.DeviceInput // properties of columns or inputs, by their name in the task
	missingFill  grid.FillRule               // treatment of missing values; the zero value means that they are an error
}

// isInOwnShare reports whether the nth row with the required texts, counted from 1, belongs to this share.
func (f *RowFilter) isInOwnShare(n int) bool {
	return f.ShareCount <= 1 || (n-1)%f.ShareCount == f.ShareIndex
}

// failsOnUnusableRow reports whether a single unusable row is an error.
func (f *RowFilter) failsOnUnusableRow() bool {
	return f.missingFill.Policy == "" || f.missingFill.Policy == grid.FillRefuse
}

// ReadCSV reads samples from CSV text with column names in its first line. features and target are column names. file
// is the name for errors. Numbers must be finite; unused columns and rows that the filter excludes may contain any
// text. It returns a [*FileError] for invalid data and wraps read errors.
func ReadCSV[T learner.Float](r io.Reader, file string, features []string, target string,
	filter RowFilter) (*learner.Samples[T], error) {
	c := filter.dialect.newRecordReader(r, nil)
	c.isTextComplete = true
	if len(features) == 0 {
		return nil, &data.FileError{File: file, Line: 1, Problem: "no feature columns were requested"}
	}
	some, at := rowBatch[T]{}, readPosition{stamp: fileStamp{path: file}}
	some.allocateColumnCounts(len(data.AppendTarget(features, target)))
	if err := some.forEachRow(c, &at, func(header []string) (*columnMapping, error) {
		return newColumnMapping(file, header, features, target, filter)
	}, func(record []string, line int) error {
		return some.addRow(at.table, record, line, 0)
	}, nil); err != nil {
		return nil, err
	}
	if at.readErr != nil {
		return nil, at.readErr
	}
	if len(some.y) == 0 {
		return nil, noRowSelectedError(file, some.rows)
	}
	return learner.NewSamples(len(features), some.x, some.y), nil
}

func noRowSelectedError(file string, rows int) *data.FileError {
	return &data.FileError{File: file, Problem: fmt.Sprintf("none of the %d rows of the file is selected", rows)}
}

// rowBatch contains rows that are read together. Its counts also include all earlier rows.
type rowBatch[T learner.Float] struct {
	csvReadCounts
	x, y  []T
	times []int64 // times of the rows, if the file has a time column
}

// forEachRow calls do for each selected row from the position at to the end of the text. newTable returns the positions
// of the required columns for the header at the start of the text, and for each later line that is a different header.
// A line that cannot be parsed is counted and passed to malformed, unless malformed is nil. If the filter does not
// allow unusable rows, such a line is an error.
//
// forEachRow sets the fields of at that depend on the content. at.table remains nil if the first header is unusable.
func (y *csvReadCounts) forEachRow(c *csvRecordReader, at *readPosition, newTable func(header []string) (*columnMapping,
	error),
	do func(record []string, line int) error, malformed func(*data.FileError)) error {
	if at.offset == 0 {
		at.table = nil
		header, err := c.readHeader(at.stamp.path)
		if err != nil {
			return err
		}
		if at.table, err = newTable(header); err != nil {
			at.table = nil
			return err
		}
		at.table.delimiter = c.delimiter
	}
	above, t := at.lineCount, at.table
	c.isHeaderRecord, c.isPlausibleRecord = t.isHeaderRecord, t.isPlausibleRecord
	defer func() {
		if at.csvRecordLayout = c.cloneLayout(); c.widenedAtLine > 0 {
			at.widenedAtLine = above + c.widenedAtLine
		}
		at.readBytes, at.readLines = c.offset, c.readLineCount
	}()
	reject := func(line int, problem string) error {
		y.rows++
		y.malformedLineCount++
		e := &data.FileError{File: t.fileName, Line: line, Problem: problem, ReasonCode: string(grid.ReasonMalformed)}
		if y.countUnusableRow(e); t.filter.failsOnUnusableRow() {
			return e
		}
		if malformed != nil {
			malformed(e)
		}
		return nil
	}
	for begin := above == 0; ; {
		record, err := c.Read()
		bad := (*csvLineError)(nil)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case isTruncatedTextError(err):
			at.readErr = wrapReadError(t.fileName, err)
			return nil
		case errors.As(err, &bad):
			if err := reject(above+bad.lineNumber, bad.problem); err != nil {
				return err
			}
			continue
		case errors.Is(err, errHeaderRepeated):
			at.widenedAtLine = 0
			if header := c.setHeader(record); !slices.Equal(header, t.header) {
				if at.table, err = newTable(header); err != nil {
					at.table = &columnMapping{fileName: t.fileName, filter: t.filter, header: header,
						wantedNames: t.wantedNames, timeColumnIndex: -1,
						targetNameIndex: -1, headerProblem: fmt.Sprintf("the header in line %d does not match: %v",
							above+c.lineNumber,
							err)}
				}
				at.table.delimiter = t.delimiter
				t = at.table
				c.isHeaderRecord, c.isPlausibleRecord = t.isHeaderRecord, t.isPlausibleRecord
			}
			continue
		case err != nil:
			return wrapReadError(t.fileName, err)
		}
		line, _ := c.FieldPosition(0)
		if t.headerProblem != "" {
			if err := reject(above+line, t.headerProblem); err != nil {
				return err
			}
			continue
		}
		if begin && line <= c.headerLineNumber+maxUnitLines && t.isUnitLine(record) {
			continue
		}
		begin = false
		y.rows++
		if !t.rowConditions.matchRecord(record) {
			continue
		}
		y.matched++
		if !t.filter.isInOwnShare(y.matched) {
			continue
		}
		if err := do(record, above+line); err != nil {
			return err
		}
	}
}

// isTruncatedTextError reports whether err means that the end of a compressed text is missing or damaged. The text
// before it can be used.
func isTruncatedTextError(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt)
}

// maxUnitLines is the maximum number of lines below the header that may contain units or similar text.
const maxUnitLines = 3

// isUnitLine reports whether a line below the header contains units instead of values, as many data loggers write them.
// In such a line the time column contains no time, and no required column contains a number. If the file has no time
// column, at least one required column must contain text. isUnitLine returns false if the filter does not allow
// unusable rows.
func (t *columnMapping) isUnitLine(record []string) bool {
	if t.filter.failsOnUnusableRow() {
		return false
	}
	if t.timeColumnIndex >= 0 {
		if _, err := t.filter.dialect.timeFormat.parseTime(strings.TrimSpace(record[t.timeColumnIndex])); err == nil {
			return false
		}
	}
	words := t.timeColumnIndex >= 0
	for _, column := range t.columnIndexes {
		if column < 0 {
			continue
		}
		text := strings.TrimSpace(record[column])
		switch _, why := t.filter.dialect.parseNumber(text); {
		case why == "", strings.IndexAny(text, "0123456789") == 0:
			return false
		case why == grid.ReasonNotANumber:
			words = true
		}
	}
	return words
}

// wrapReadError converts a *csvLineError to a *data.FileError. It wraps any other error with the file name.
func wrapReadError(file string, err error) error {
	if bad := (*csvLineError)(nil); errors.As(err, &bad) {
		return &data.FileError{File: file, Line: bad.lineNumber, Problem: bad.problem}
	}
	return fmt.Errorf("%s: %w", file, err)
}
