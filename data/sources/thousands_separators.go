package sources

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// The comma in 1,000 may be a decimal comma or a thousands separator. The functions in this file decide this from the
// other numbers of the column.

// separatorUse describes how a column uses a separator, which is a comma or a point.
type separatorUse struct {
	ambiguousNumber     string // a number in which the separator may separate thousands, such as 1,000; empty if none
	separatesThousands  bool   // whether a number such as 1,000,000 shows that the character separates thousands
	hasThreeDigitNumber bool   // whether the column contains an integer from 100 to 999
	hasLargeNumber      bool   // whether the column contains an integer with more than three digits and no separator
}

// examineCell examines a cell. It returns false if the separator is a decimal separator in this cell, as in 1,5.
func (g *separatorUse) examineCell(text, separator string) bool {
	digits := strings.TrimLeft(text, "+-")
	_, sure, ok := removeThousandsSeparators(text, separator)
	switch {
	case ok:
		g.ambiguousNumber, g.separatesThousands = cmp.Or(g.ambiguousNumber, text), g.separatesThousands || sure
	case digits != "" && isDigits(digits):
		g.hasThreeDigitNumber = g.hasThreeDigitNumber || len(digits) == 3 && digits[0] != '0'
		g.hasLargeNumber = g.hasLargeNumber || len(digits) > 3
	default:
		whole, part, found := strings.Cut(digits, separator)
		_, err := strconv.ParseFloat(whole+"."+part, 64)
		return !found || err != nil
	}
	return true
}

// findNumberWithThousands returns a number in which the separator, a comma or a point, may separate thousands, and the
// column of this number. It returns "" if the separator is a decimal separator in another number. sure is true if the
// column also contains numbers in which the separator can only separate thousands. sure is also true if the column
// contains integers from 100 to 999 but no larger integers without a separator: a program that writes three decimals
// does not write both 980 and 1,000.
func (s *csvSurvey) findNumberWithThousands(separator string) (number, column string, sure bool) {
	columns := make([]separatorUse, len(s.columns))
	decimal := false
	s.forEachSelectedCell(func(i int, text string) bool {
		decimal = !columns[i].examineCell(text, separator)
		return !decimal
	})
	if decimal {
		return "", "", false
	}
	for i, g := range columns {
		if g.ambiguousNumber != "" && (number == "" || !sure) {
			number, column, sure = g.ambiguousNumber, s.columns[i].Name,
				g.separatesThousands || g.hasThreeDigitNumber && !g.hasLargeNumber
		}
	}
	return number, column, sure
}

// maxScannedRecords is the maximum number of records that forEachSelectedCell reads.
const maxScannedRecords = 100_000

// forEachSelectedCell calls take with the cells of the required columns in the selected lines, and the index of the
// column, until take returns false.
func (s *csvSurvey) forEachSelectedCell(take func(column int, text string) bool) {
	paths, err := expandPath(s.file.path)
	if err != nil {
		return
	}
	left := maxScannedRecords
	for _, path := range paths {
		if !s.forEachSelectedCellInFile(path, &left, take) {
			return
		}
	}
}

// forEachSelectedCellInFile implements forEachSelectedCell for one file. It reads at most left records, and returns
// false if take has returned false.
func (s *csvSurvey) forEachSelectedCellInFile(path string, left *int, take func(column int, text string) bool) bool {
	r, err := OpenTextFile(path)
	if err != nil {
		return true
	}
	defer r.Close()
	c := s.dialect.newRecordReader(r, nil)
	c.forbidsAddedColumns, c.isTextComplete = true, true
	header, err := c.readHeader(path)
	if err != nil {
		return true
	}
	var where rowConditions
	for name, value := range s.file.filter.RequiredTextByColumn {
		at := slices.Index(header, name)
		if at < 0 {
			return true
		}
		where = append(where, rowCondition{at, value})
	}
	places := make([]int, len(s.columns))
	for i, x := range s.columns {
		if places[i] = slices.Index(header, cmp.Or(x.FileColumn, x.Name)); len(x.ClassCounts) > 0 {
			places[i] = -1
		}
	}
	for ; *left > 0; *left-- {
		record, err := c.Read()
		switch bad := (*csvLineError)(nil); {
		case errors.As(err, &bad):
			continue
		case err != nil:
			return true
		case !where.matchRecord(record):
			continue
		}
		for i, at := range places {
			if at >= 0 && !take(i, strings.TrimSpace(record[at])) {
				return false
			}
		}
	}
	return true
}
