package data

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data/grid"
)

// dialect is how a file is written. The zero value has commas between fields and points in numbers.
type dialect struct {
	delimiter rune              // between fields; 0 = a comma
	comma     bool              // in numbers, in place of the point
	columns   map[string]string // the names in the file, by those of the task
	time      timeFormat
}

func dialectOf(c *Config) (d dialect, err error) {
	d.columns, d.comma = c.Columns, c.Decimal == ","
	if d.time, err = newTimeFormat(c.TimeFormat, c.TimeZone); err != nil {
		return d, err
	}
	if c.Delimiter != "" {
		d.delimiter, _ = utf8.DecodeRuneInString(c.Delimiter)
	}
	return d, nil
}

// checkDialect returns why a delimiter and a decimal cannot be.
func checkDialect(delimiter, decimal string) error {
	switch {
	case delimiter != "" && (utf8.RuneCountInString(delimiter) != 1 || strings.ContainsAny(delimiter, "\"\r\n\ufffd")):
		return fmt.Errorf("delimiter is %q; want one character, such as \";\" or \"\\t\"", delimiter)
	case decimal != "" && decimal != "." && decimal != ",":
		return fmt.Errorf("decimal is %q; want \".\" or \",\"", decimal)
	case decimal == "," && (delimiter == "" || delimiter == ","):
		return errors.New("a comma cannot be in numbers and between fields: set delimiter, such as \";\"")
	}
	return nil
}

// reader reads records of a text. above is how many lines are before it.
func (d *dialect) reader(text io.Reader, above int) *records {
	r := &records{limit: &bounded{text, maxRecord}}
	r.buffer = bufio.NewReaderSize(r.limit, edgeBytes)
	if above == 0 {
		// an error is met by the read of the header
		if mark, _ := r.buffer.Peek(3); bytes.Equal(mark, []byte("\ufeff")) {
			_, _ = r.buffer.Discard(3)
		}
	}
	r.Reader = csv.NewReader(r.buffer) // which has no buffer of its own then
	r.ReuseRecord = true
	if d.delimiter != 0 {
		r.Comma = d.delimiter
	}
	r.TrimLeadingSpace = r.Comma != '\t' && r.Comma != ' ' // before a quote
	return r
}

// named returns the name in the file of a column of the task.
func (d *dialect) named(column string) string {
	if name, there := d.columns[column]; there {
		return name
	}
	return column
}

// missing reports whether a cell says that there is no value.
func missing(text string) bool {
	switch strings.ToLower(text) {
	case "", "-", "--", "?", "na", "n/a", "#n/a", "nan", "null", "nil", "none":
		return true
	}
	return false
}

// number reads a cell. Without a reason the number is finite.
func (d *dialect) number(text string) (float64, Reason) {
	if missing(text) {
		return 0, grid.Missing
	}
	number := text
	if d.comma {
		if strings.Contains(text, ".") {
			return 0, grid.NotANumber
		}
		number = strings.Replace(text, ",", ".", 1)
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err == nil && !finite(v), errors.Is(err, strconv.ErrRange):
		return 0, grid.NotFinite
	case err == nil:
		return v, ""
	case strings.EqualFold(text, "true"):
		return 1, ""
	case strings.EqualFold(text, "false"):
		return 0, ""
	}
	return 0, grid.NotANumber
}

// value reads a cell of an input: what it says if the input has classes, else the number.
func (d *dialect) value(classes bool, text string) (v float64, said string, why Reason) {
	if classes && text != "" {
		return 0, text, ""
	}
	v, why = d.number(text)
	return v, "", why
}

// problem says for a person what is wrong with a cell, or a reading.
func problem(text string, why Reason) string {
	switch {
	case why == grid.OutOfRange:
		return shorten(text) + " is out of the input's range"
	case why == grid.UnknownClass:
		return shorten(text) + " is none of the input's classes"
	case text == "":
		return "empty where a number is needed"
	case why == grid.NotFinite && strings.ContainsAny(text, "0123456789"):
		return shorten(text) + " is too large"
	case why == grid.NotFinite:
		return shorten(text) + " is not finite"
	}
	return shorten(text) + " is not a number"
}
