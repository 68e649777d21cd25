package sources

import (
	"errors"
	"io"

	"github.com/fedmesh/fedmesh/data"
)

// RowReader reads the rows of a CSV text one by one.
type RowReader struct {
	records *csvRecordReader
	table   *columnMapping
}

// NewRowReader reads the header of a text and returns a reader for the rows below the header. file is the name for
// errors. If c describes a CSV file, the text must have the same dialect as that file.
func NewRowReader(c *data.Config, text io.Reader, file string, columns []string) (*RowReader, error) {
	var d csvDialect
	if c.Kind() == data.SourceCSV {
		var err error
		if d, err = dialectFromConfig(c); err != nil {
			return nil, err
		}
	}
	r := &RowReader{records: d.newRecordReader(text, nil)}
	// Each row must be returned at once, without waiting for the next row.
	r.records.forbidsAddedColumns, r.records.isTextComplete = true, true
	header, err := r.records.readHeader(file)
	if err != nil {
		return nil, err
	}
	last := len(columns) - 1
	if r.table, err = newColumnMapping(file, header, columns[:last], columns[last], RowFilter{dialect: d}); err != nil {
		return nil, err
	}
	return r, nil
}

// WouldWait reports whether Next would block because no row is buffered.
func (r *RowReader) WouldWait() bool { return r.records.buffer.Buffered() == 0 }

// Next reads the columns of the next row into x and returns its line number. It returns io.EOF at the end. A
// *data.FileError describes an unusable row, and Next may be called again; any other error is a read error.
func (r *RowReader) Next(x []float32) (line int, err error) {
	t := r.table
	record, err := r.records.Read()
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	if err != nil {
		return 0, wrapReadError(t.fileName, err)
	}
	line, _ = r.records.FieldPosition(0)
	for i := range t.columnIndexes {
		c := t.readCell(record, i, nil)
		why := c.why
		if x[i], why = convertNumber[float32](c.value, why); why != "" {
			return line, &data.FileError{File: t.fileName, Line: line,
				Column:  t.filter.dialect.fileColumnName(t.wantedNames[i]),
				Problem: data.DescribeCellProblem(c.text, why)}
		}
	}
	return line, nil
}
