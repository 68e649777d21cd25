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
	// maxRecord bounds a line of CSV, in bytes. The rest of a longer one is skipped.
	maxRecord = 1 << 20
	// maxQuoted bounds a record whose quoted fields contain line breaks, in bytes. Beyond it the quote is taken for a
	// stray one.
	maxQuoted = 64 << 10
)

// records reads the records of CSV text. A line that cannot be parsed costs no other line: Read returns an error for
// it, and continues with the next one. A record is a line, unless a quoted field contains line breaks and the record
// then has as many fields as the header.
type records struct {
	buffer    *bufio.Reader
	delimiter rune
	comment   string // lines that begin with it are skipped; empty = none
	skip      int    // lines above the header
	least     int    // fields of the header
	width     int    // fields of a record; 0 = not known yet
	regular   bool   // a record had as many fields as the header

	first   int      // line of the header
	line    int      // of the last record, from 1
	next    int      // lines that were read
	ahead   [][]byte // lines that were read to judge the one before, and not used yet
	failed  error    // of the read behind them
	fields  []string
	columns []int // byte of each field in its record, from 1
}

// lineError says what is wrong with a line. Reading may continue.
type lineError struct {
	line    int
	problem string // for a person
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.problem) }

// Read returns the next record, or a *lineError, io.EOF, or the failure of the underlying reader. The record is valid
// until the next call; its fields stay valid. Empty lines and comments are skipped.
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
		case r.regular && n >= r.least && r.nextHas(n): // a column was added to the file
			r.width = n
			return r.fields, nil
		}
		return nil, &lineError{r.line, fmt.Sprintf("%s where the header has %d: %s", count(n, "field"), r.width,
			shorten(text))}
	}
}

// parse sets the fields of a line. Empty fields behind the last column do not count: some programs end each line with a
// delimiter.
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

// nextHas reports whether the next line has so many fields, too. One line alone with more fields than the header is
// rather two lines of which a power cut has taken the line break.
func (r *records) nextHas(n int) bool {
	line, err := r.readLine()
	if err != nil {
		r.failed = err // of the next read
		return false
	}
	r.ahead = append([][]byte{bytes.Clone(line)}, r.ahead...)
	r.next--
	next := records{delimiter: r.delimiter, width: r.width}
	next.parse(utf8Text(string(line)))
	return len(next.fields) == n
}

// FieldPos returns the line of the last record, and the byte at which a field of it begins.
func (r *records) FieldPos(field int) (line, column int) { return r.line, r.columns[field] }

// readLine returns the next line without its line break. It is valid until the next call.
func (r *records) readLine() ([]byte, error) {
	if len(r.ahead) > 0 {
		line := r.ahead[0]
		r.ahead = r.ahead[1:]
		r.next++
		return line, nil
	}
	if err := r.failed; err != nil {
		r.failed = nil
		return nil, r.count(err)
	}
	line, err := r.buffer.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.readLong(line)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	// A power cut leaves zeros where a block was not written.
	return bytes.Trim(line, "\x00\r\n"), r.count(err)
}

// count counts a line that was read, or is too long to be.
func (r *records) count(err error) error {
	if bad := (*lineError)(nil); err == nil || errors.As(err, &bad) {
		r.next++
		if bad != nil {
			r.line, bad.line = r.next, r.next
		}
	}
	return err
}

// readLong reads the rest of a line that is longer than the buffer.
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

// split parses a line in which quotes mean nothing.
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

// quoted parses a line with quotes. A quote inside a field is text, as in 3/4" valve. A quote that nothing closes may
// begin a field with line breaks; else quotes mean nothing in this line.
func (r *records) quoted(line string) {
	open, stray := r.unquote(line)
	if open && r.buffer != nil && r.joinLines(line) || !open && !stray || !open && r.fits() {
		return
	}
	if r.split(line); !open && !r.fits() {
		r.unquote(line)
	}
}

// fits reports whether the record has as many fields as others.
func (r *records) fits() bool { return r.width == 0 || len(r.fields) == r.width }

// unquote parses a text by the rules of RFC 4180. open reports that a quoted field has no end; stray that a quote was
// taken for text.
func (r *records) unquote(text string) (open, stray bool) {
	r.fields, r.columns = r.fields[:0], r.columns[:0]
	delimiter := string(r.delimiter)
	blanks := strings.ReplaceAll(" \t", delimiter, "") // around a quoted field
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
			if field.WriteByte('"'); text[at] == '"' { // two quotes are one
				at++
			} else {
				stray = true
			}
		}
		r.fields = append(r.fields, field.String())
	}
}

// joinLines reads more lines for a record whose last field is open. It reports false, and takes none, unless they
// make a record of the right width without stray quotes.
func (r *records) joinLines(record string) bool {
	var more [][]byte
	first := r.next
	for len(record) < maxQuoted {
		line, err := r.readLine()
		if err != nil {
			r.failed = err // of the next read
			break
		}
		more = append(more, bytes.Clone(line))
		record += "\n" + utf8Text(string(line))
		if !bytes.Contains(line, []byte(`"`)) {
			continue
		}
		open, stray := r.unquote(record)
		if !open && !stray && r.fits() {
			return true
		}
		if !open || stray {
			break
		}
	}
	r.ahead, r.next = append(more, r.ahead...), first
	return false
}

// begin skips the lines above the header, a byte order mark, and the line in which Excel names the delimiter. It
// waits for no more of the text than a line.
func (r *records) begin() {
	for n := 0; ; n++ {
		line, err := r.readLine()
		if err != nil {
			r.failed = err // of the next read
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

// header reads the first line that is not skipped: the names of the columns, without blanks around them. The file's
// name is for errors.
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
	for n := len(names); n > 1 && names[n-1] == ""; n-- { // a delimiter at the end of each line
		names = names[:n-1]
	}
	r.least, r.width, r.first = len(names), len(names), r.line
	return names, nil
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
