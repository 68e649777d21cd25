package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxRecord is the maximum size of a line of CSV, in bytes. A longer line is an error.
	maxRecord = 1 << 20
	// maxQuoted is the maximum size of a record whose quoted fields contain line breaks, in bytes. If no closing quote
	// follows within this size, the opening quote is read as ordinary text.
	maxQuoted = 64 << 10
)

// records reads the records of a CSV text. Read returns an error for a line that cannot be parsed, and the next call
// continues with the next line. A record is one line. If a quoted field contains line breaks, a record consists of
// several lines, provided that these have the right number of fields together.
type records struct {
	buffer    *bufio.Reader
	delimiter rune
	comment   string // prefix of lines to skip; empty = none
	skip      int    // number of lines above the header
	least     int    // number of fields of the header
	width     int    // expected number of fields of a record; 0 = not known yet
	regular   bool   // a record had as many fields as the header

	first   int      // line number of the header
	line    int      // line number of the last record, from 1
	next    int      // number of lines read
	ahead   [][]byte // lines read in advance, which readLine returns next
	failed  error    // error of the read after these lines, which readLine returns then
	fields  []string
	columns []int // position of each field in its record, in bytes from 1
}

// lineError describes a line that cannot be parsed. The caller may continue to read.
type lineError struct {
	line    int
	problem string // human-readable
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.problem) }

// Read returns the next record. It skips comments and lines without any text. The error is a *lineError, io.EOF, or the
// error of the underlying reader. The slice is valid until the next call; its strings remain valid.
func (r *records) Read() ([]string, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		r.line = r.next
		if r.comment != "" && bytes.HasPrefix(line, []byte(r.comment)) {
			continue
		}
		text := utf8Text(string(line))
		r.parse(text)
		n := len(r.fields)
		switch {
		case !slices.ContainsFunc(r.fields, func(f string) bool { return strings.TrimSpace(f) != "" }):
			continue
		case r.width == 0 || n == r.width:
			r.regular = r.regular || n == r.least
			return r.fields, nil
		case r.regular && n >= r.least && r.nextLineHas(n): // a column was added to the file
			r.width = n
			return r.fields, nil
		}
		return nil, &lineError{r.line, fmt.Sprintf("%s where the header has %d: %s", countNoun(n, "field"), r.width,
			shorten(text))}
	}
}

// parse splits a line into r.fields. It drops empty fields after the last column, because some programs end each line
// with a delimiter.
func (r *records) parse(text string) {
	if strings.IndexByte(text, '"') < 0 {
		r.split(text)
	} else {
		r.quoted(text)
	}
	for n := len(r.fields); r.width > 0 && n > r.width && strings.TrimSpace(r.fields[n-1]) == ""; n-- {
		r.fields = r.fields[:n-1]
	}
}

// nextLineHas reports whether the next line has n fields. It does not consume this line. A single line with too many
// fields is not a sign of a new column: it may be two lines whose line break was lost in a power cut.
func (r *records) nextLineHas(n int) bool {
	line, err := r.readLine()
	if err != nil {
		r.failed = err // for the next call of readLine
		return false
	}
	r.ahead = append([][]byte{bytes.Clone(line)}, r.ahead...)
	r.next--
	next := records{delimiter: r.delimiter, width: r.width}
	next.parse(utf8Text(string(line)))
	return len(next.fields) == n
}

// FieldPos returns the line number of the last record, and the position of one of its fields in bytes from 1.
func (r *records) FieldPos(field int) (line, column int) { return r.line, r.columns[field] }

// readLine returns the next line without its line break. The slice is valid until the next call.
func (r *records) readLine() ([]byte, error) {
	if len(r.ahead) > 0 {
		line := r.ahead[0]
		r.ahead = r.ahead[1:]
		r.next++
		return line, nil
	}
	if err := r.failed; err != nil {
		r.failed = nil
		return nil, r.countLine(err)
	}
	line, err := r.buffer.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.readLong(line)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	// After a power cut, a block that was not written contains NUL bytes.
	return bytes.Trim(line, "\x00\r\n"), r.countLine(err)
}

// countLine increments the line number if a line was read or was too long, and sets the line number of a *lineError.
func (r *records) countLine(err error) error {
	if bad := (*lineError)(nil); err == nil || errors.As(err, &bad) {
		r.next++
		if bad != nil {
			r.line, bad.line = r.next, r.next
		}
	}
	return err
}

// readLong reads the rest of a line that is longer than the buffer. The error is a *lineError if the line has more than
// maxRecord bytes.
func (r *records) readLong(begin []byte) ([]byte, error) {
	line := bytes.Clone(begin)
	for {
		more, err := r.buffer.ReadSlice('\n')
		if len(line) <= maxRecord {
			line = append(line, more...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil && len(line) > maxRecord, errors.Is(err, io.EOF) && len(line) > maxRecord:
			return nil, &lineError{problem: fmt.Sprintf("longer than %d bytes", maxRecord)}
		}
		return line, err
	}
}

// split splits a line at each delimiter. Quotes have no special meaning.
func (r *records) split(line string) {
	r.fields, r.columns = r.fields[:0], r.columns[:0]
	for from := 0; ; {
		i := strings.IndexRune(line[from:], r.delimiter)
		r.columns = append(r.columns, from+1)
		if i < 0 {
			r.fields = append(r.fields, line[from:])
			return
		}
		r.fields = append(r.fields, line[from:from+i])
		from += i + utf8.RuneLen(r.delimiter)
	}
}

// quoted parses a line that contains quotes. A quote inside a field is ordinary text, as in 3/4" valve. If a quote is
// not closed, the field may continue on the next lines; if these do not close it either, the line is split at each
// delimiter. If the line has stray quotes and an unexpected number of fields, it is also split if that gives the
// expected number.
func (r *records) quoted(line string) {
	open, stray := r.unquote(line)
	if open && r.buffer != nil && r.joinLines(line) || !open && !stray || !open && r.hasExpectedWidth() {
		return
	}
	if r.split(line); !open && !r.hasExpectedWidth() {
		r.unquote(line)
	}
}

// hasExpectedWidth reports whether the record has the expected number of fields.
func (r *records) hasExpectedWidth() bool { return r.width == 0 || len(r.fields) == r.width }

// unquote parses a record by the rules of RFC 4180. open reports that the last field has no closing quote. stray
// reports that a quote was read as ordinary text.
func (r *records) unquote(text string) (open, stray bool) {
	r.fields, r.columns = r.fields[:0], r.columns[:0]
	delimiter := string(r.delimiter)
	blanks := strings.ReplaceAll(" \t", delimiter, "") // ignored around a quoted field
	for at := 0; ; {
		rest := strings.TrimLeft(text[at:], blanks)
		if !strings.HasPrefix(rest, `"`) {
			r.columns = append(r.columns, at+1)
			field, _, more := strings.Cut(text[at:], delimiter)
			r.fields = append(r.fields, field)
			stray = stray || strings.Contains(field, `"`)
			if !more {
				return false, stray
			}
			at += len(field) + len(delimiter)
			continue
		}
		at = len(text) - len(rest)
		r.columns = append(r.columns, at+1)
		var field strings.Builder
		for at++; ; {
			i := strings.IndexByte(text[at:], '"')
			if i < 0 {
				r.fields = append(r.fields, field.String()+text[at:])
				return true, stray
			}
			field.WriteString(text[at : at+i])
			at += i + 1
			behind := strings.TrimLeft(text[at:], blanks)
			if behind == "" {
				r.fields = append(r.fields, field.String())
				return false, stray
			}
			if strings.HasPrefix(behind, delimiter) {
				at = len(text) - len(behind) + len(delimiter)
				break
			}
			if field.WriteByte('"'); text[at] == '"' { // a doubled quote is an escaped quote
				at++
			} else {
				stray = true
			}
		}
		r.fields = append(r.fields, field.String())
	}
}

// joinLines appends the next lines to a record whose last field has no closing quote, until the field is closed. It
// returns true if the result has the expected number of fields and no stray quotes. Otherwise it consumes no line.
func (r *records) joinLines(record string) bool {
	var more [][]byte
	first := r.next
	for len(record) < maxQuoted {
		line, err := r.readLine()
		if err != nil {
			r.failed = err // for a later call of readLine
			break
		}
		more = append(more, bytes.Clone(line))
		record += "\n" + utf8Text(string(line))
		if !bytes.Contains(line, []byte(`"`)) {
			continue
		}
		open, stray := r.unquote(record)
		if !open && !stray && r.hasExpectedWidth() {
			return true
		}
		if !open || stray {
			break
		}
	}
	r.ahead, r.next = append(more, r.ahead...), first
	return false
}

// begin skips the lines above the header, a byte order mark, and the line with which Excel declares the delimiter. It
// waits for no more input than the header line, since the text may be typed on a terminal.
func (r *records) begin() {
	for n := 0; ; n++ {
		line, err := r.readLine()
		if err != nil {
			r.failed = err // returned by the next read
			return
		}
		if n == 0 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if n < r.skip {
			continue
		}
		if rest, is := bytes.CutPrefix(line, []byte("sep=")); is && n == 0 {
			if c, size := utf8.DecodeRune(rest); size > 0 && size == len(rest) {
				r.delimiter = c
				return
			}
		}
		r.ahead, r.next = append([][]byte{bytes.Clone(line)}, r.ahead...), r.next-1
		return
	}
}

// header reads the first line that is not skipped, and returns the column names without surrounding space. file is the
// file name for errors.
func (r *records) header(file string) ([]string, error) {
	r.begin()
	record, err := r.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &Error{File: file, Problem: "empty; the first line must name the columns"}
	case err != nil:
		return nil, readError(file, err)
	}
	names := make([]string, len(record)) // a copy: the record is used again
	for i, name := range record {
		names[i] = strings.TrimSpace(name)
	}
	for n := len(names); n > 1 && names[n-1] == ""; n-- { // each line ends with a delimiter
		names = names[:n-1]
	}
	r.least, r.width, r.first = len(names), len(names), r.line
	return names, nil
}

// countNoun returns n and the noun what, with a plural s unless n is 1.
func countNoun(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
