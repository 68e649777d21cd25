package data

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
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
