package sources

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
)

// These are reasons of faults that concern the numbers of a column as a whole rather than a single cell. The values are
// still used.
const (
	// ReasonEarlyTimes means that the times are numbers that, read as time since 1970, are before 1990.
	ReasonEarlyTimes         data.UnusedReason = "early_times"
	ReasonThousandsSeparator data.UnusedReason = "thousands" // a decimal comma or point probably separates thousands
)

// addRemedies adds faults that concern the numbers of a column as a whole. It then adds advice to each fault that has
// none.
func (s *csvSurvey) addRemedies() {
	s.checkEarlyTimes()
	s.checkThousandsSeparators()
	for _, c := range s.columns {
		s.AddSentinelFault(c)
	}
	for _, f := range s.Faults {
		if f.Remedy == "" {
			f.Remedy = s.remedyForFault(f)
		}
	}
}

// remedyForFault returns the advice for a fault.
func (s *csvSurvey) remedyForFault(f *survey.DataFaultGroup) string {
	switch f.Reason {
	case survey.ReasonNoColumn:
		switch {
		case s.query != nil && s.query.Recipe != nil && !s.linesAreReadings:
			return "if the lines are readings, set data.time to the name of the time column"
		case f.Column == "":
			return "correct data.where: its texts must match the file exactly, including upper and lower case"
		case s.mayHaveManyFiles && s.usableFileCount > 0:
			return "other files contain the column: export this file with the same columns, " +
				"or exclude it with a pattern in data.csv"
		}
		return s.missingColumnRemedy(f.Column)
	case survey.ReasonUnreadable:
		return s.unreadableFileRemedy(f)
	case grid.ReasonBadTime:
		return s.timeRemedy(f)
	case grid.ReasonMissing:
		return s.missingValueRemedy(f)
	case grid.ReasonNotANumber, grid.ReasonNotFinite:
		return s.numberRemedy(f)
	case grid.ReasonOutOfRange:
		return s.rangeRemedy(f)
	case grid.ReasonUnknownClass:
		return s.unknownClassRemedy(f)
	}
	return "correct these values in the file"
}

// checkEarlyTimes adds a fault if all times are numbers that mean times before 1990, and no other time format fits.
func (s *csvSurvey) checkEarlyTimes() {
	format := &s.dialect.timeFormat
	if s.readableTimeCount == 0 || s.LatestTime.UnixNano() >= rows.MinPlausibleUnixNanos ||
		format.numericTimeUnit() == 0 ||
		!s.hasNumbersAsTimes() {
		return
	}
	f := s.AddFault(s.file.filter.TimeColumn, ReasonEarlyTimes, survey.DataFault{Problem: fmt.Sprintf(
		"if the times are read %s, they range from %s to %s",
		timeFormat{format: cmp.Or(format.format, "unix")}.exampleTime(),
		s.EarliestTime.Format(time.RFC3339), s.LatestTime.Format(time.RFC3339))})
	first, isDay := format.excelDay(s.EarliestTime.UnixNano())
	_, isLastDay := format.excelDay(s.LatestTime.UnixNano())
	if isDay && isLastDay {
		f.Remedy = fmt.Sprintf(
			"if these are Excel day numbers (the first is %s), export the column as text, such as %s 12:00:00",
			first.Format(time.DateOnly), first.Format(time.DateOnly))
		return
	}
	f.Remedy = "if these are dates, correct data.time_format; times since the start of an experiment need no change"
}

// hasNumbersAsTimes reports whether the first time in the last file is a number.
func (s *csvSurvey) hasNumbersAsTimes() bool {
	r, err := OpenTextFile(s.currentFilePath)
	if err != nil {
		return false
	}
	defer r.Close()
	c := s.dialect.newRecordReader(r, nil)
	c.forbidsAddedColumns, c.isTextComplete = true, true
	header, err := c.readHeader(s.currentFilePath)
	at := slices.Index(header, s.file.filter.TimeColumn) // a later header may have other columns
	if err != nil || at < 0 {
		return false
	}
	for range maxHeaderSearchRecords {
		record, err := c.Read()
		if bad := (*csvLineError)(nil); errors.As(err, &bad) {
			continue
		} else if err != nil {
			return false
		}
		text := strings.TrimSpace(record[at])
		if _, err := s.dialect.timeFormat.parseTime(text); err == nil {
			_, err := strconv.ParseFloat(text, 64)
			return err == nil
		}
	}
	return false
}

// checkThousandsSeparators adds a fault if numbers such as 1,000 were parsed with a decimal comma, or 1.000 with a
// decimal point, although the other numbers of the column show that 1000 is meant.
func (s *csvSurvey) checkThousandsSeparators() {
	if s.thisDecimalCells == 0 || s.dialect.thousandsSeparator != "" {
		return
	}
	separator, key := ".", ""
	if s.dialect.usesDecimalComma {
		separator, key = ",", ` (data.decimal: ",")`
	}
	if number, column, sure := s.findNumberWithThousands(separator); sure {
		v, _ := s.dialect.parseNumber(number)
		s.AddFault(column, ReasonThousandsSeparator, survey.DataFault{Problem: fmt.Sprintf(
			"%q is read as %v%s, but the column also contains whole numbers from 100 to 999", number, v, key)}).Remedy =
			thousandsAdvice(number)
	}
}

// thousandsAdvice returns the advice for a file with a number such as 1,000.
func thousandsAdvice(number string) string {
	return fmt.Sprintf("numbers such as %q contain thousands separators: export the file without them", number)
}

// unreadableFileRemedy returns the advice for a file that cannot be read.
func (s *csvSurvey) unreadableFileRemedy(f *survey.DataFaultGroup) string {
	paths, err := expandPath(s.file.path)
	for _, path := range paths {
		if err == nil {
			_, err = readFileHeader(path, &s.dialect)
		}
	}
	content := (*fileContentError)(nil)
	switch {
	case errors.As(err, &content):
		return content.remedy
	case errors.Is(err, fs.ErrNotExist):
		return "correct data.csv, or copy the file to this path"
	case errors.Is(err, fs.ErrPermission):
		return "give the user that runs agentd permission to read the file"
	case err == nil && strings.HasPrefix(f.FirstFaults[0].Problem, "after line "):
		return "copy the file again: part of it is missing or damaged"
	}
	return "export the file again, with the column names in its first line"
}

// timeRemedy returns the advice for times that cannot be parsed.
func (s *csvSurvey) timeRemedy(f *survey.DataFaultGroup) string {
	format, texts := s.dialect.timeFormat, s.unreadableTimes.All
	if len(texts) == 0 {
		return "lines without a time are skipped; if another column contains the time, set data.time to its name"
	}
	if s.readableTimeCount >= f.Count {
		swapped := timeFormat{strings.NewReplacer("01", "02", "02", "01").Replace(format.format), format.zone}
		if _, err := parseAllTimes(texts, swapped); err == nil && swapped.format != format.format {
			return fmt.Sprintf("if day and month are swapped in all lines, set data.time_format to %q; "+
				"otherwise only these lines are skipped", swapped.format)
		}
		return "only these lines are skipped; to use them, write all times in one format and time zone"
	}
	unknown := (*zoneAbbreviationError)(nil)
	if _, err := format.parseTime(texts[0]); errors.As(err, &unknown) {
		return unknown.zoneAdvice()
	}
	if layout, unknown := guessAbbreviationLayout(texts, format.zone); layout != "" {
		return fmt.Sprintf("set data.time_format to %q, and %s", layout, unknown.zoneAdvice())
	}
	return "set data.time_format to a Go time layout: the time 2006-01-02 15:04:05 in the format of the file, " +
		"with the offset as -0700"
}

// missingValueRemedy returns the advice for missing values in a column of rows.
func (s *csvSurvey) missingValueRemedy(f *survey.DataFaultGroup) string {
	switch policy := s.file.filter.missingFill.Policy; {
	case s.file.filter.failsOnUnusableRow():
		return "set data.missing to skip, so that only these rows are left out"
	case f.Column == s.query.Target:
		return "only these rows are skipped: a target is never filled in"
	case policy == grid.FillSkip:
		return "only these rows are skipped; to fill in the value, set data.missing to last or mean"
	default:
		return fmt.Sprintf("data.missing is %s: the value is filled in if a previous value exists", policy)
	}
}

// rangeRemedy returns the advice for values outside their range.
func (s *csvSurvey) rangeRemedy(f *survey.DataFaultGroup) string {
	if bounds := s.file.filter.deviceInputs[f.Column].ValidRange; len(bounds) == 2 {
		return fmt.Sprintf("only these values are rejected; if they are correct, widen data.range: {%q: [%v, %v]}",
			f.Column, bounds[0], bounds[1])
	}
	if s.query != nil && s.query.Recipe != nil {
		for _, in := range s.query.Recipe.Inputs {
			if in.Name == f.Column && len(in.ValidRange) == 2 {
				return fmt.Sprintf("only these values are rejected: the task accepts %v to %v; check the unit of the "+
					"column", in.ValidRange[0], in.ValidRange[1])
			}
		}
	}
	return "only these values are rejected"
}

// numberRemedy returns the advice for cells that contain no number, or a number that is infinite or too large.
func (s *csvSurvey) numberRemedy(f *survey.DataFaultGroup) string {
	other := s.dialect
	other.usesDecimalComma = !other.usesDecimalComma
	var grouped, decimal, unit string // one example of each kind of text
	var words []string
	for _, one := range f.FirstFaults {
		text, whole := leadingQuotedText(one)
		digits := strings.TrimLeftFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		first, _ := utf8.DecodeRuneInString(digits)
		_, why := other.parseNumber(text)
		switch {
		case f.Reason == grid.ReasonNotANumber && isNumberWithThousands(text):
			grouped = cmp.Or(grouped, text)
		case f.Reason == grid.ReasonNotANumber && why == "":
			decimal = cmp.Or(decimal, text)
		case f.Reason == grid.ReasonNotANumber && unicode.IsDigit(first) && !strings.Contains(text, "#"):
			unit = cmp.Or(unit, data.QuoteForMessage(text))
		case whole && !slices.Contains(words, strconv.Quote(text)):
			words = append(words, strconv.Quote(text))
		}
	}
	var remedies []string
	switch {
	case decimal != "":
		remedies = append(remedies, fmt.Sprintf("write %q and the other numbers with the same decimal separator",
			decimal))
	case grouped != "":
		remedies = append(remedies, thousandsAdvice(grouped)+s.decimalAdvice(grouped))
	case unit != "":
		remedies = append(remedies, fmt.Sprintf("write %s as a plain number, without a unit or other characters", unit))
	case len(words) > 1 && f.Reason == grid.ReasonNotANumber && s.columnByName(f.Column).NumberStats.Count == 0:
		return "the column contains no numbers: select another column in data.columns; " +
			"an input with texts requires classes in the task"
	}
	const most = 5
	switch words = words[:min(len(words), most)]; {
	case len(words) == 1:
		remedies = append(remedies, fmt.Sprintf("if %s means a missing value, add it to data.missing_values: [%s]",
			words[0], words[0]))
	case len(words) > 1:
		remedies = append(remedies, fmt.Sprintf(
			"if these texts mean missing values, add them to data.missing_values: [%s]", strings.Join(words, ", ")))
	case len(remedies) == 0:
		return "correct these cells, or leave them empty"
	}
	return strings.Join(remedies, "; ")
}

// isNumberWithThousands reports whether a text is a number with separators between groups of three digits.
func isNumberWithThousands(text string) bool {
	return slices.ContainsFunc([]string{",", ".", "'", " ", "\u00a0", "\u202f", "_"}, func(separator string) bool {
		_, _, ok := removeThousandsSeparators(text, separator)
		return ok
	})
}

// decimalAdvice returns the advice to set data.decimal for a number with thousands separators. It returns "" if the
// number has no decimal separator or already uses the configured one.
func (s *csvSurvey) decimalAdvice(number string) string {
	i := strings.LastIndexAny(number, ".,")
	if i < 0 || strings.Count(number, number[i:i+1]) > 1 {
		return ""
	}
	decimal := number[i : i+1]
	if _, _, ok := removeThousandsSeparators(number, decimal); ok || (decimal == ",") == s.dialect.usesDecimalComma {
		return ""
	}
	return fmt.Sprintf(", and set data.decimal to %q", decimal)
}

// leadingQuotedText returns the quoted text at the start of the problem. whole is false if the text was shortened.
func leadingQuotedText(f survey.DataFault) (text string, whole bool) {
	quoted, err := strconv.QuotedPrefix(f.Problem)
	if err != nil {
		return "", false
	}
	text, err = strconv.Unquote(quoted)
	return text, err == nil && !strings.HasPrefix(f.Problem[len(quoted):], "…")
}

// missingColumnRemedy returns the advice for a missing column, such as a column with a similar name.
func (s *csvSurvey) missingColumnRemedy(column string) string {
	name := s.dialect.fileColumnName(column)
	near := spec.ClosestSpelling(name, s.UnwantedColumns, normalizeColumnName)
	_, condition := s.file.filter.RequiredTextByColumn[column]
	hint := strings.TrimPrefix(s.dialect.skipRowsHint(s.currentFilePath, []string{name}), "; ")
	switch {
	case hint != "":
		return hint
	case slices.Contains(s.header, name):
		return "rename one of them, or select another column in data.columns"
	case near == "":
		return "the file has the columns " + quoteNames(s.header)
	case column == s.file.filter.TimeColumn:
		return fmt.Sprintf("did you mean %q? set data.time to this name", near)
	case condition:
		return fmt.Sprintf("did you mean %q? correct data.where", near)
	}
	return fmt.Sprintf("did you mean %q? set data.columns: {%q: %q}", near, column, near)
}

// normalizeColumnName simplifies a column name for comparison: PM2.5 (µg/m³) becomes pm25.
func normalizeColumnName(name string) string {
	if i := strings.IndexAny(name, "(["); i > 0 {
		name = name[:i]
	}
	const most = 200 // in runes; limits the cost of the edit distance
	folded := []rune(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name))
	return string(folded[:min(len(folded), most)])
}

// unknownClassRemedy returns advice that names the classes of an input.
func (s *csvSurvey) unknownClassRemedy(f *survey.DataFaultGroup) string {
	if valid := s.targetFilter.String(); valid != "" {
		return "the task expects " + valid + "; only rows with other targets are skipped"
	}
	if x := s.columnByName(f.Column); x != nil && len(x.Texts) > 0 {
		return "the known classes are " + quoteNames(x.Texts)
	}
	return "only rows with known classes are used"
}

// columnByName returns the column of the survey with the given name, or nil.
func (s *csvSurvey) columnByName(name string) *survey.ColumnSurvey {
	i := slices.IndexFunc(s.columns, func(x *survey.ColumnSurvey) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return s.columns[i]
}
