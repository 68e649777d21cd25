package sources

import (
	"errors"
	"io"

	"github.com/fedmesh/fedmesh/data"
)

// RowReader reads the rows of a CSV text one by one, as a file of the section is written.
type RowReader struct {
	records *csvRecordReader
	table   *columnMapping
}

// NewRowReader reads the first line of a text, which names the columns, and returns what reads the rows below it. The
// file's name is for errors. The text is written as the section says, if its source is a CSV file.
func NewRowReader(c *data.Config, text io.Reader, file string, columns []string) (*RowReader, error) {
	var d csvDialect
	if c.Kind() == data.SourceCSV {
		var err error
		if d, err = dialectFromConfig(c); err != nil {
			return nil, err
		}
	}
	r := &RowReader{records: d.newRecordReader(text, nil)}
	// rows are read once, without waiting for the next ones
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

// WouldWait reports whether the next row is not there yet, so that Next waits for the text's reader.
func (r *RowReader) WouldWait() bool { return r.records.buffer.Buffered() == 0 }

// Next reads the columns of the next row into x, and returns its line. The error is io.EOF behind the last one; an
// *Error of a row that cannot be used, behind which Next goes on; or a failure to read.
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
