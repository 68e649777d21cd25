package data

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRecord bounds a record of CSV, in bytes: a quote without an end would have all of a file read into memory.
const maxRecord = 1 << 20

// records reads the records of CSV text.
type records struct {
	*csv.Reader
	buffer *bufio.Reader
	limit  *bounded
}

// Read returns the next record. It is valid until the next call.
func (r *records) Read() ([]string, error) {
	r.limit.left = maxRecord
	return r.Reader.Read()
}

// header reads the first line: the names of the columns, without blanks around them. The file's name is for errors.
func (r *records) header(file string) ([]string, error) {
	record, err := r.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &Error{File: file, Problem: "empty; the first line must name the columns"}
	case err != nil:
		return nil, readError(file, err, nil, 0, 0)
	}
	names := make([]string, len(record)) // a copy: the record is used again
	for i, name := range record {
		names[i] = strings.TrimSpace(name)
	}
	return names, nil
}

// bounded passes on a text until a record is too long.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a line has over %d bytes: a quote may be missing", maxRecord)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
