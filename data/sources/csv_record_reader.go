package sources

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data"
)

const (
	// maxLineBytes is the maximum length of a CSV line in bytes. A longer line is an error.
	maxLineBytes = 1 << 20
	// maxQuotedRecordBytes is the maximum length in bytes of a record whose quoted fields contain line breaks. If no
	// closing quote follows within this length, the opening quote is read as ordinary text.
	maxQuotedRecordBytes = 64 << 10
)

// csvRecordReader reads the records of a CSV text. Read returns an error for a line that cannot be parsed, and the next
// call continues with the next line. A record is usually one line. It may span several lines if a quoted field contains
// line breaks and the lines have the right number of fields together.
type csvRecordReader struct {
	buffer            *bufio.Reader
	delimiter         rune
	commentPrefix     string // prefix of lines to skip; empty means none
	preambleLineCount int    // number of lines above the header

	headerFieldCount int // number of fields of the header
	csvRecordLayout
	// widenedAtLine is the number of the first line with an added column; 0 means that no column was added.
	widenedAtLine int
	// forbidsAddedColumns is true if lines with more fields than the header must be rejected, because an earlier pass
	// found that no column was added. See hasFieldCountChanged.
	forbidsAddedColumns bool
	// isTextComplete is true if no program will append further lines to the text.
	isTextComplete bool
	// isHeaderRecord reports whether a record repeats the header, perhaps with other columns. It may be nil.
	isHeaderRecord func(record []string) bool
	// isPlausibleRecord reports whether the required columns of a record contain values. It may be nil.
	isPlausibleRecord func(record []string) bool

	headerLineNumber int        // line number of the header
	lineNumber       int        // line number of the last record, from 1
	readLineCount    int        // number of lines read
	offset           int64      // total length in bytes of the lines read so far
	linesAhead       []textLine // lines read in advance, which readLine returns next
	readErr          error      // read error that follows the lines in linesAhead
	fields           []string
	fieldPositions   []int // position of each field in its record, in bytes from 1
}

// textLine is a line without its line break.
type textLine struct {
	text              []byte
	sizeWithLineBreak int    // length in bytes, including the line break
	problem           string // reason why the line cannot be parsed; empty if it can
}

// csvLineError describes a line that cannot be parsed. The caller may continue to read.
type csvLineError struct {
	lineNumber int
	problem    string // description of the problem for users
}

func (e *csvLineError) Error() string { return fmt.Sprintf("line %d: %s", e.lineNumber, e.problem) }

var (
	// errHeaderRepeated is returned by Read with a record that repeats the header.
	errHeaderRepeated = errors.New("the header is repeated")
	// errNoColumnsAdded is returned by Read if lines with more fields than the header turn out to have no added column.
	// The text has to be read again with forbidsAddedColumns.
	errNoColumnsAdded = errors.New(
		"lines with more fields than the header were followed by lines with the same number of fields as the header")
)

// Read returns the next record. It skips comments and blank lines. The error is a *csvLineError, errHeaderRepeated,
// errNoColumnsAdded, io.EOF or the error of the underlying reader. The slice is valid until the next call; its strings
// remain valid.
func (r *csvRecordReader) Read() ([]string, error) {
	for {
		before := r.offset
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		r.lineNumber = r.readLineCount
		if r.commentPrefix != "" && bytes.HasPrefix(line, []byte(r.commentPrefix)) {
			continue
		}
		text := data.UTF8Text(string(line))
		r.parseLine(text)
		n := len(r.fields)
		switch {
		case isBlankRecord(r.fields):
			continue
		case r.isHeaderRecord != nil && r.isHeaderRecord(r.fields):
			return r.fields, errHeaderRepeated
		case r.fieldCount == 0 || n == r.fieldCount:
			r.sawHeaderWidth = r.sawHeaderWidth || n == r.headerFieldCount
			if r.fieldCount > 0 {
				r.recentRecords.addRecord(r.fields)
			}
			return r.fields, nil
		case n == r.headerFieldCount && n < r.fieldCount,
			n > r.fieldCount && r.sawHeaderWidth && !r.forbidsAddedColumns &&
				r.insertedFieldNumber == 0 &&
				(r.isPlausibleRecord == nil || r.isPlausibleRecord(r.fields)):
			example, changed, known := r.hasFieldCountChanged(n)
			switch {
			case !known: // the line is read again when another line has been appended
				r.offset, r.readLineCount = before, r.lineNumber-1
				return nil, io.EOF
			case changed && n < r.fieldCount:
				return nil, errNoColumnsAdded
			case changed:
				r.insertedFieldNumber = 1 + r.recentRecords.insertedFieldPosition([][]string{r.fields, example})
			}
			if changed && r.insertedFieldNumber == 0 {
				r.fieldCount, r.recentRecords, r.widenedAtLine = n, recentCSVRecords{}, r.lineNumber
				return r.fields, nil
			}
		}
		return nil, &csvLineError{r.lineNumber, describeFieldCountProblem(n, r.fieldCount, r.insertedFieldNumber, text)}
	}
}

// isBlankRecord reports whether no field contains text.
func isBlankRecord(fields []string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return strings.TrimSpace(f) != "" })
}

// parseLine splits a line into r.fields. It drops empty fields after the last column, because some programs end each
// line with a delimiter.
func (r *csvRecordReader) parseLine(text string) {
	if strings.IndexByte(text, '"') < 0 {
		r.splitLine(text)
	} else {
		r.parseRecordWithQuotes(text)
	}
	for n := len(r.fields); r.fieldCount > 0 && n > r.fieldCount && strings.TrimSpace(r.fields[n-1]) == ""; n-- {
		r.fields, r.hasTrailingDelimiter = r.fields[:n-1], true
	}
}

// FieldPosition returns the line number of the last record, and the position of one of its fields in bytes from 1.
func (r *csvRecordReader) FieldPosition(field int) (line, column int) {
	return r.lineNumber, r.fieldPositions[field]
}

// peekLine returns the line that follows the next n lines, without consuming any line.
func (r *csvRecordReader) peekLine(n int) (textLine, error) {
	for len(r.linesAhead) <= n {
		if r.readErr != nil {
			return textLine{}, r.readErr
		}
		first, rest, err := r.fetchLines()
		if r.readErr = err; err == nil {
			first.text = bytes.Clone(first.text)
			r.linesAhead = append(append(r.linesAhead, first), rest...)
		}
	}
	return r.linesAhead[n], nil
}

// readLine returns the next line without its line break. The slice is valid until the next call.
func (r *csvRecordReader) readLine() ([]byte, error) {
	var next textLine
	if len(r.linesAhead) > 0 {
		next, r.linesAhead = r.linesAhead[0], r.linesAhead[1:]
	} else {
		if r.readErr == nil {
			next, r.linesAhead, r.readErr = r.fetchLines()
		}
		if r.readErr != nil {
			return nil, r.readErr
		}
	}
	r.readLineCount++
	r.offset += int64(next.sizeWithLineBreak)
	if next.problem != "" {
		r.lineNumber = r.readLineCount
		return nil, &csvLineError{r.readLineCount, next.problem}
	}
	return next.text, nil
}

// fetchLines reads the text up to the next line feed. A carriage return within this text also ends a line. first is the
// first line, and rest contains the other lines. first.text is valid until the next call.
func (r *csvRecordReader) fetchLines() (first textLine, rest []textLine, err error) {
	text, err := r.buffer.ReadSlice('\n')
	size := len(text)
	for long := []byte(nil); errors.Is(err, bufio.ErrBufferFull); text = long {
		if len(long) == 0 {
			long = bytes.Clone(text)
		}
		var more []byte
		more, err = r.buffer.ReadSlice('\n')
		if size += len(more); len(long) <= maxLineBytes {
			long = append(long, more...)
		}
	}
	if errors.Is(err, io.EOF) && size > 0 {
		err = nil
	}
	if err != nil {
		return textLine{}, nil, err
	}
	if len(text) > maxLineBytes {
		return textLine{sizeWithLineBreak: size, problem: fmt.Sprintf("the line is longer than %d bytes",
			maxLineBytes)}, nil, nil
	}
	text = bytes.TrimRight(text, "\r\n")
	at := bytes.IndexByte(text, '\r')
	if at < 0 {
		return newTextLine(text, size), nil, nil
	}
	first = newTextLine(text[:at], at+1)
	for from := at + 1; from <= len(text); {
		part, _, more := bytes.Cut(text[from:], []byte("\r"))
		n := len(part) + 1
		if !more {
			n = size - from
		}
		rest = append(rest, newTextLine(bytes.Clone(part), n))
		from += len(part) + 1
	}
	return first, rest, nil
}

// cutOffPrefix is the start of the problem text for a line whose end was not written.
const cutOffPrefix = "the line is truncated and followed by NUL bytes: "

// newTextLine returns a line without leading NUL bytes, which a power cut leaves in disk blocks that were not written.
// NUL bytes after the text mean that the end of the line was not written.
func newTextLine(text []byte, size int) textLine {
	text = bytes.TrimLeft(text, "\x00")
	if begin := bytes.TrimRight(text, "\x00"); len(begin) < len(text) {
		return textLine{sizeWithLineBreak: size, problem: cutOffPrefix + data.QuoteForMessage(string(begin))}
	}
	return textLine{text: text, sizeWithLineBreak: size}
}

// splitLine splits a line at each delimiter. Quotes have no special meaning.
func (r *csvRecordReader) splitLine(line string) {
	r.fields, r.fieldPositions = r.fields[:0], r.fieldPositions[:0]
	for from := 0; ; {
		i := strings.IndexRune(line[from:], r.delimiter)
		r.fieldPositions = append(r.fieldPositions, from+1)
		if i < 0 {
			r.fields = append(r.fields, line[from:])
			return
		}
		r.fields = append(r.fields, line[from:from+i])
		from += i + utf8.RuneLen(r.delimiter)
	}
}

// parseRecordWithQuotes parses a line that contains quotes. A quote inside a field is ordinary text, as in 3/4" valve.
// If a quote is not closed, the field may continue on the next lines. If the next lines do not close the quote, the
// line is split at each delimiter. A line with stray quotes and an unexpected number of fields is also split at each
// delimiter if this yields the expected number.
func (r *csvRecordReader) parseRecordWithQuotes(line string) {
	open, stray := r.parseQuotedFields(line)
	if open && r.buffer != nil && r.joinQuotedLines(line) || !open && !stray || !open && r.hasExpectedFieldCount() {
		return
	}
	if r.splitLine(line); !open && !r.hasExpectedFieldCount() {
		r.parseQuotedFields(line)
	}
}

// hasExpectedFieldCount reports whether the record has the expected number of fields.
func (r *csvRecordReader) hasExpectedFieldCount() bool {
	return r.fieldCount == 0 || len(r.fields) == r.fieldCount
}

// parseQuotedFields parses a record by the rules of RFC 4180. open reports that the last field has no closing quote.
// stray reports that a quote was read as ordinary text.
func (r *csvRecordReader) parseQuotedFields(text string) (open, stray bool) {
	r.fields, r.fieldPositions = r.fields[:0], r.fieldPositions[:0]
	delimiter := string(r.delimiter)
	blanks := strings.ReplaceAll(" \t", delimiter, "") // blanks around a quoted field are ignored
	for at := 0; ; {
		rest := strings.TrimLeft(text[at:], blanks)
		if !strings.HasPrefix(rest, `"`) {
			r.fieldPositions = append(r.fieldPositions, at+1)
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
		r.fieldPositions = append(r.fieldPositions, at+1)
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

// joinQuotedLines appends the next lines to a record whose last field has no closing quote, until the field is closed.
// It returns true if the result has the expected number of fields and no stray quotes. Otherwise, or if one of the
// lines is a complete record, it consumes no line.
func (r *csvRecordReader) joinQuotedLines(record string) bool {
	alone := csvRecordReader{delimiter: r.delimiter}
	for n := 0; len(record) < maxQuotedRecordBytes; n++ {
		line, err := r.peekLine(n)
		if err != nil || line.problem != "" {
			return false
		}
		text := data.UTF8Text(string(line.text))
		alone.splitLine(text)
		if len(alone.fields) == r.fieldCount && r.isPlausibleRecord != nil && r.isPlausibleRecord(alone.fields) {
			return false
		}
		if record += "\n" + text; !strings.Contains(text, `"`) {
			continue
		}
		open, stray := r.parseQuotedFields(record)
		if !open && !stray && r.hasExpectedFieldCount() {
			for range n + 1 {
				_, _ = r.readLine() // cannot fail, because peekLine returned these lines
			}
			return true
		}
		if !open || stray {
			return false
		}
	}
	return false
}

// skipPreamble skips the lines above the header, a byte order mark, and the line with which Excel declares the
// delimiter. It does not read beyond the header line, because the text may be typed on a terminal.
func (r *csvRecordReader) skipPreamble() {
	for n := range r.preambleLineCount + 1 {
		line, err := r.peekLine(0)
		if err != nil {
			return // the next read will return the error
		}
		if n == 0 {
			r.linesAhead[0].text = bytes.TrimPrefix(line.text, []byte("\ufeff"))
		}
		if n == 0 && r.preambleLineCount == 0 {
			if rest, is := bytes.CutPrefix(r.linesAhead[0].text, []byte("sep=")); is {
				if c, size := utf8.DecodeRune(rest); size > 0 && size == len(rest) {
					r.delimiter = c
					_, _ = r.readLine() // cannot fail, because peekLine returned this line
				}
			}
		}
		if n < r.preambleLineCount {
			_, _ = r.readLine() // ignore errors, because lines before the header may be invalid
		}
	}
}

// readHeader reads the header and returns the column names without surrounding spaces. file is the file name for
// errors.
func (r *csvRecordReader) readHeader(file string) ([]string, error) {
	r.skipPreamble()
	record, err := r.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &data.FileError{File: file, Problem: "the file is empty; the first line must name the columns"}
	case err != nil:
		return nil, wrapReadError(file, err)
	}
	names := r.setHeader(record)
	r.headerLineNumber = r.lineNumber
	return names, nil
}

// setHeader sets the expected number of fields from a header and returns the column names without surrounding spaces.
func (r *csvRecordReader) setHeader(record []string) []string {
	names := make([]string, len(record)) // a copy, because record is reused
	for i, name := range record {
		names[i] = strings.TrimSpace(name)
	}
	for n := len(names); n > 1 && names[n-1] == ""; n-- { // the name is empty if each line ends with a delimiter
		names = names[:n-1]
	}
	r.headerFieldCount, r.widenedAtLine = len(names), 0
	r.csvRecordLayout = csvRecordLayout{fieldCount: len(names), hasTrailingDelimiter: r.hasTrailingDelimiter}
	return names
}

// formatCount returns n and the noun what, with a plural s unless n is 1.
func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
