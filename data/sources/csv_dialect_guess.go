package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
)

// Many files that cannot be read are valid but do not match the configuration. From the content of a file, the
// functions in this file find the configuration key that is wrong.

// guessConfigChange finds a change of the dialect that the file requires, and applies it. It returns false if no change
// is found.
func (s *csvSurvey) guessConfigChange() (survey.SuggestedConfigChange, bool) {
	if d, found := s.guessDelimiter(); found {
		c := survey.SuggestedConfigChange{Key: "delimiter", Value: string(d),
			Reason: fmt.Sprintf("the columns of the file are separated by %q", string(d))}
		s.dialect.delimiter = d
		return c, true
	}
	if s.otherDecimalCells > s.thisDecimalCells && s.otherDecimalCells > s.nonNumbers/2 &&
		s.dialect.thousandsSeparator == "" {
		return s.changeDecimalSeparator(), true
	}
	if s.readableTimeCount > s.unreadableTimes.SeenCount && s.LatestTime.UnixNano() < rows.MinPlausibleUnixNanos {
		if format := s.dialect.timeFormat.findPlausibleFormat(s.EarliestTime.UnixNano(),
			s.LatestTime.UnixNano()); format != "" {
			s.dialect.timeFormat.format = format
			why := "without this setting, the times are before 1990" + zoneHint(format, s.dialect.timeFormat.zone)
			return survey.SuggestedConfigChange{Key: "time_format", Value: format, Reason: why}, true
		}
	}
	if s.readableTimeCount == 0 && len(s.unreadableTimes.All) > 0 {
		if format, why := guessTimeFormat(s.unreadableTimes.All, s.dialect.timeFormat.zone); format != "" {
			s.dialect.timeFormat.format = format
			return survey.SuggestedConfigChange{Key: "time_format", Value: format, Reason: why}, true
		}
	}
	return survey.SuggestedConfigChange{}, false
}

// guessDelimiter searches for a delimiter with which the header contains more of the required columns.
func (s *csvSurvey) guessDelimiter() (best rune, found bool) {
	if s.query == nil && s.file.filter.TimeColumn == "" && len(s.header) > 1 || s.countMissingColumns() == 0 &&
		len(s.header) > 1 {
		return 0, false
	}
	return s.findBetterDelimiter(s.wantedFileColumns())
}

// findBetterDelimiter searches for a delimiter with which the header contains more of the given names, or more columns
// if names is empty.
func (s *csvSurvey) findBetterDelimiter(names []string) (best rune, found bool) {
	most := countKnownNames(names, s.header)
	for _, r := range ";\t,|" {
		if r == cmp.Or(s.dialect.delimiter, ',') {
			continue
		}
		d := s.dialect
		d.delimiter = r
		header, err := readFileHeader(s.file.path, &d)
		if err != nil {
			continue
		}
		if n := countKnownNames(names, header); n > most {
			best, most, found = r, n, true
		}
	}
	return best, found
}

// readFileHeader returns the column names in the header of a file.
func readFileHeader(path string, d *csvDialect) ([]string, error) {
	paths, err := expandPath(path)
	if err != nil {
		return nil, err
	}
	r, err := OpenTextFile(paths[0])
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return d.newRecordReader(r, nil).readHeader(paths[0])
}

// countMissingColumns returns the number of required columns that are missing in the file.
func (s *csvSurvey) countMissingColumns() (n int) {
	for _, f := range s.Faults {
		if f.Reason == survey.ReasonNoColumn || f.Reason == survey.ReasonUnreadable {
			n++
		}
	}
	return n
}

// wantedFileColumns returns the names that the required columns have in the file, as far as the names are known.
func (s *csvSurvey) wantedFileColumns() (names []string) {
	switch {
	case s.query == nil:
	case s.linesAreReadings:
		for _, in := range survey.NeededInputs(s.query) {
			names = append(names, s.dialect.fileColumnName(in.Name))
		}
	default:
		for _, name := range s.query.Columns() {
			names = append(names, s.dialect.fileColumnName(name))
		}
	}
	if name := s.file.filter.TimeColumn; name != "" {
		names = append(names, name)
	}
	return names
}

// countKnownNames returns how many of the names the header contains, or the length of the header if names is empty.
func countKnownNames(names, header []string) (n int) {
	if len(names) == 0 {
		return len(header)
	}
	for _, name := range names {
		if slices.Contains(header, name) {
			n++
		}
	}
	return n
}

// countCellByDecimal counts whether a cell is a number with the current or with the other decimal separator.
func (s *csvSurvey) countCellByDecimal(text string, why data.UnusedReason) {
	if why == "" {
		if strings.ContainsAny(text, ".,") {
			s.thisDecimalCells++
		}
		return
	}
	with := s.dialect
	with.usesDecimalComma = !with.usesDecimalComma
	_, why = with.parseNumber(text)
	if why == "" {
		s.otherDecimalCells++
	}
	if why == "" || s.query != nil { // without a task, a column may contain texts
		s.nonNumbers++
	}
}

// changeDecimalSeparator switches the dialect between a decimal comma and a decimal point. If the character separates
// thousands in the file, changeDecimalSeparator removes these separators instead, and suggests a change of the file.
func (s *csvSurvey) changeDecimalSeparator() survey.SuggestedConfigChange {
	separator := ","
	if s.dialect.usesDecimalComma {
		separator = "."
	}
	between := cmp.Or(s.dialect.delimiter, ',') == ','
	number, _, sure := s.findNumberWithThousands(separator)
	if number != "" && (sure || between && separator == ",") {
		s.dialect.thousandsSeparator = separator
		return survey.SuggestedConfigChange{Reason: thousandsAdvice(number)}
	}
	s.dialect.usesDecimalComma = !s.dialect.usesDecimalComma
	doubt := ""
	if number != "" {
		plain, _, _ := removeThousandsSeparators(number, separator)
		doubt = fmt.Sprintf("; if %q means %s, export the file without thousands separators instead", number, plain)
	}
	switch {
	case separator == ".":
		return survey.SuggestedConfigChange{Key: "decimal", Value: ".", Reason: "the numbers have a decimal " +
			"point" + doubt}
	case between:
		return survey.SuggestedConfigChange{Reason: `the numbers have a decimal comma,
			but commas also separate the columns: export the ` + `file with another delimiter, such as ";"`}
	}
	return survey.SuggestedConfigChange{Key: "decimal", Value: ",", Reason: "the numbers have a decimal comma" + doubt}
}
