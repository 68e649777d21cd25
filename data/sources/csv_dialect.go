package sources

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

// csvDialect describes the format of a CSV file. The zero value means commas between fields and points in numbers.
type csvDialect struct {
	delimiter              rune              // field delimiter; 0 means a comma
	usesDecimalComma       bool              // whether numbers have a decimal comma instead of a point
	thousandsSeparator     string            // thousands separator, which only a survey removes; empty means none
	fileColumnByTaskColumn map[string]string // column names in the file by column names of the task
	timeFormat             timeFormat
	missingValues          grid.MissingValues
	preambleLineCount      int    // number of lines above the header
	commentPrefix          string // prefix of lines to skip; empty means none
}

func dialectFromConfig(c *data.Config) (d csvDialect, err error) {
	d.fileColumnByTaskColumn, d.usesDecimalComma, d.preambleLineCount, d.commentPrefix = c.ColumnByInput,
		c.DecimalSeparator == ",",
		c.SkipRows, c.CommentPrefix
	d.missingValues = c.MissingValueRules()
	if d.timeFormat, err = newTimeFormat(c.TimeFormat, c.TimeZone); err != nil {
		return d, err
	}
	if c.Delimiter != "" {
		d.delimiter, _ = utf8.DecodeRuneInString(c.Delimiter)
	}
	return d, nil
}

// checkDialect returns an error if the delimiter and the decimal separator are invalid or conflict.
func checkDialect(delimiter, decimal string) error {
	switch {
	case delimiter != "" && (utf8.RuneCountInString(delimiter) != 1 || strings.ContainsAny(delimiter, "\"\r\n\ufffd")):
		return fmt.Errorf("delimiter is %q, but must be one character, such as \";\" or \"\\t\"", delimiter)
	case decimal != "" && decimal != "." && decimal != ",":
		return fmt.Errorf("decimal is %q, but must be \".\" or \",\"", decimal)
	case decimal == "," && (delimiter == "" || delimiter == ","):
		return errors.New(
			"the comma cannot be both decimal separator and delimiter: set delimiter, for example to \";\"")
	}
	return nil
}

// newRecordReader returns a reader for the records of a text. If at is nil, the text is a whole file. Otherwise the
// text begins at the position at within a file, and the reader uses the header and the delimiter that were found
// before.
func (d *csvDialect) newRecordReader(text io.Reader, at *readPosition) *csvRecordReader {
	r := &csvRecordReader{buffer: bufio.NewReaderSize(text, maxFileEndBytes), delimiter: ',',
		commentPrefix: d.commentPrefix}
	if d.delimiter != 0 {
		r.delimiter = d.delimiter
	}
	if at != nil {
		r.forbidsAddedColumns, r.isTextComplete = at.forbidsAddedColumns, at.hasLaterFile || !at.isResumable
	}
	if at != nil && at.offset > 0 {
		r.headerFieldCount, r.csvRecordLayout = len(at.table.header), at.cloneLayout()
		if r.delimiter = at.table.delimiter; r.delimiter == 0 {
			r.delimiter = ','
		}
		return r
	}
	r.preambleLineCount = d.preambleLineCount
	return r
}

// fileColumnName returns the name that a column of the task has in the file.
func (d *csvDialect) fileColumnName(column string) string {
	if name, there := d.fileColumnByTaskColumn[column]; there {
		return name
	}
	return column
}

// parseNumber parses a cell. It returns a finite number, or the reason why the cell contains no valid number.
func (d *csvDialect) parseNumber(text string) (float64, data.UnusedReason) {
	if d.missingValues.HasText(text) {
		return 0, grid.ReasonMissing
	}
	number := text
	if d.thousandsSeparator != "" {
		if plain, _, ok := removeThousandsSeparators(text, d.thousandsSeparator); ok {
			text, number = plain, plain
		}
	}
	if d.usesDecimalComma {
		if strings.Contains(text, ".") {
			return 0, grid.ReasonNotANumber
		}
		number = strings.Replace(text, ",", ".", 1)
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err == nil && !data.IsFinite(v), errors.Is(err, strconv.ErrRange):
		return 0, grid.ReasonNotFinite
	case err == nil && d.missingValues.HasNumber(v):
		return 0, grid.ReasonMissing
	case err == nil:
		return v, ""
	case strings.EqualFold(text, "true"):
		return 1, ""
	case strings.EqualFold(text, "false"):
		return 0, ""
	}
	return 0, grid.ReasonNotANumber
}

// skipRowsHint returns advice if the column names are in another line than expected. It searches the first
// maxHeaderSearchRecords records of the file. It returns "" if no other line contains all names or the file cannot be
// read.
func (d *csvDialect) skipRowsHint(file string, names []string) string {
	text, err := OpenTextFile(file)
	if err != nil || len(names) == 0 {
		return ""
	}
	defer text.Close()
	all := *d
	all.preambleLineCount = 0
	c := all.newRecordReader(text, nil)
	for range maxHeaderSearchRecords {
		record, err := c.Read()
		if err != nil {
			return ""
		}
		line, _ := c.FieldPosition(0)
		for i, name := range record {
			record[i] = strings.TrimSpace(name)
		}
		missing := func(name string) bool { return !slices.Contains(record, name) }
		if line != d.preambleLineCount+1 && !slices.ContainsFunc(names, missing) {
			return fmt.Sprintf("; line %d contains the column name: set data.skip_rows to %d", line, line-1)
		}
	}
	return ""
}

// maxHeaderSearchRecords is the number of records that skipRowsHint searches for the column names.
const maxHeaderSearchRecords = 100

// removeThousandsSeparators returns a number such as 1,000 or 1,000.5 without the separators between groups of three
// digits. ok is false if the text is not such a number. sure is false if the separator may be a decimal separator, as
// in 1,000.
func removeThousandsSeparators(text, separator string) (number string, sure, ok bool) {
	digits := strings.TrimLeft(text, "+-")
	sign := text[:len(text)-len(digits)]
	whole, fraction := digits, ""
	if i := strings.LastIndexAny(digits, ".,"); i >= 0 && digits[i:i+1] != separator {
		whole, fraction = digits[:i], digits[i:]
	}
	groups := strings.Split(whole, separator)
	if len(groups) < 2 || len(sign) > 1 || groups[0] == "" || len(groups[0]) > 3 || groups[0][0] == '0' ||
		fraction != "" && !isDigits(fraction[1:]) {
		return "", false, false
	}
	for i, group := range groups {
		if !isDigits(group) || i > 0 && len(group) != 3 {
			return "", false, false
		}
	}
	return sign + strings.Join(groups, "") + fraction, len(groups) > 2 || fraction != "", true
}

// isDigits reports whether a text consists of decimal digits.
func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }
