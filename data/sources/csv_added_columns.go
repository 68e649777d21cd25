package sources

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/data"
)

// csvRecordLayout describes the fields that a reader expects, based on the records it has read.
type csvRecordLayout struct {
	fieldCount     int  // expected number of fields of a record; 0 means unknown
	sawHeaderWidth bool // whether a record had as many fields as the header
	// hasTrailingDelimiter reports that a line ended with a delimiter after the last column. An empty last field then
	// does not indicate an added column.
	hasTrailingDelimiter bool
	// insertedFieldNumber is the number of a field that was added before the last column; 0 means that no field was
	// added. Lines with this field are invalid until a header names the field.
	insertedFieldNumber int
	recentRecords       recentCSVRecords
}

func (l *csvRecordLayout) cloneLayout() csvRecordLayout {
	c := *l
	c.recentRecords = l.recentRecords.clone()
	return c
}

// describeFieldCountProblem describes a line with n fields instead of want fields. insertedAt is the number of an
// inserted field, or 0.
func describeFieldCountProblem(n, want, insertedAt int, text string) string {
	problem := fmt.Sprintf("found %s, but the header has %d: %s",
		formatCount(n, "field"), want, data.QuoteForMessage(text))
	if insertedAt > 0 && n > want {
		problem += fmt.Sprintf("; field %d was probably added and is missing in the header", insertedAt)
	}
	return problem
}

// addedFieldsAdvice is the remedy for lines with more fields than the header.
const addedFieldsAdvice = "start a new file, or insert a header line with the names of all columns above these lines"

// describeAddedFields describes lines whose additional fields are ignored.
func describeAddedFields(n, want int) string {
	return fmt.Sprintf("from this line on, lines have %s, but the header has %d: the additional fields are ignored",
		formatCount(n, "field"), want)
}

// hasFieldCountChanged reports whether a column was added, so that the lines have n fields from now on. This is the
// case if more of the next lines have n fields than the current number of fields. Otherwise the last line may contain a
// delimiter in a field, as in "rain, heavy", or a power cut may have joined two lines. known is false if there is no
// next line yet. example is the first of the examined records with n fields.
func (r *csvRecordReader) hasFieldCountChanged(n int) (example []string, changed, known bool) {
	const examined = 8
	votes, next := 0, csvRecordReader{delimiter: r.delimiter, csvRecordLayout: csvRecordLayout{fieldCount: max(n,
		r.fieldCount)}}
	if r.hasTrailingDelimiter {
		next.fieldCount = r.headerFieldCount
	}
	for i := range examined {
		line, err := r.peekLine(i)
		if err != nil {
			return example, votes > 0, i > 0 || r.isTextComplete || !errors.Is(err, io.EOF)
		}
		if line.problem != "" {
			continue
		}
		switch next.parseLine(data.UTF8Text(string(line.text))); len(next.fields) {
		case n:
			votes++
			if example == nil {
				example = slices.Clone(next.fields)
			}
		case r.fieldCount:
			votes--
		}
	}
	return example, votes > 0, true
}

// recentCSVRecords contains the last records with the expected number of fields. If later records have more fields, the
// stored records show the position of the added field.
type recentCSVRecords struct {
	records     [][]string
	oldestIndex int // index of the record to be replaced next
}

const (
	maxRecentRecords = 8 // maximum number of recent records
	minRecentRecords = 4 // minimum number of recent records from which the usual values of a column are known
)

func (r *recentCSVRecords) addRecord(record []string) {
	if len(r.records) < maxRecentRecords {
		r.records = append(r.records, slices.Clone(record))
		return
	}
	r.records[r.oldestIndex] = append(r.records[r.oldestIndex][:0], record...)
	r.oldestIndex = (r.oldestIndex + 1) % maxRecentRecords
}

// clone returns a copy that shares no memory with r.
func (r *recentCSVRecords) clone() recentCSVRecords {
	c := recentCSVRecords{make([][]string, len(r.records)), r.oldestIndex}
	for i, record := range r.records {
		c.records[i] = slices.Clone(record)
	}
	return c
}

// insertedFieldPosition returns the position, from 0, of the first additional field in the wider records if it precedes
// the last column. It returns -1 if the additional fields probably follow the last column. All wider records have the
// same number of fields.
//
// It compares values: the additional fields are at the position at which the fewest columns change their range of
// values or change from numbers to texts. They are assumed to follow the last column unless another position is better.
func (r *recentCSVRecords) insertedFieldPosition(wider [][]string) int {
	if len(r.records) < minRecentRecords {
		return -1
	}
	columns := len(r.records[0])
	extra := len(wider[0]) - columns
	best, least := -1, 0
	for position := columns; position >= 0; position-- {
		changed := 0
		for c := range columns {
			now := c
			if c >= position {
				now += extra
			}
			if columnValueRange(r.records, c).suggestsOtherColumn(columnValueRange(wider, now)) {
				changed++
			}
		}
		if position == columns {
			least = changed
		} else if changed < least {
			best, least = position, changed
		}
	}
	return best
}

// valueRange describes the values of one column in several records.
type valueRange struct {
	least, most float64 // minimum and maximum of the numbers
	numberCount int
	textCount   int // number of non-empty values that are not numbers
}

func columnValueRange(records [][]string, column int) valueRange {
	v := valueRange{least: math.Inf(1), most: math.Inf(-1)}
	for _, record := range records {
		text := strings.TrimSpace(record[column])
		number, err := strconv.ParseFloat(strings.Replace(text, ",", ".", 1), 64)
		switch {
		case text == "":
		case err != nil || math.IsNaN(number):
			v.textCount++
		default:
			v.numberCount++
			v.least, v.most = min(v.least, number), max(v.most, number)
		}
	}
	return v
}

// suggestsOtherColumn reports whether later values probably belong to another column. This is the case for texts
// instead of numbers, and for numbers whose distance from v exceeds three times the wider range.
func (v valueRange) suggestsOtherColumn(later valueRange) bool {
	switch {
	case v.numberCount+v.textCount == 0 || later.numberCount+later.textCount == 0:
		return false
	case (v.numberCount > v.textCount) != (later.numberCount > later.textCount):
		return true
	case v.numberCount == 0 || later.numberCount == 0:
		return false
	}
	distance := max(later.least-v.most, v.least-later.most)
	return distance > 3*max(v.most-v.least, later.most-later.least)
}
