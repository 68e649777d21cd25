package data

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// Often a file that cannot be read is as it should be, and the configuration is not. These say which key is wrong, from
// what is in the file.

// guess returns a change of the dialect that the file needs, if there is one, and makes it.
func (s *csvSurvey) guess() (ConfigChange, bool) {
	if d, found := s.guessDelimiter(); found {
		c := ConfigChange{"delimiter", string(d), fmt.Sprintf("the file has %q between its columns", string(d))}
		s.dialect.delimiter = d
		return c, true
	}
	if s.otherDecimalCells > s.thisDecimalCells && s.otherDecimalCells > s.nonNumbers/2 && s.dialect.thousands == "" {
		return s.changeDecimal(), true
	}
	if s.goodTimes > s.unreadableTimes.n && s.Last.UnixNano() < minPlausibleUnix {
		if format := s.dialect.time.plausibleFormat(s.First.UnixNano(), s.Last.UnixNano()); format != "" {
			s.dialect.time.format = format
			why := "the times would be before 1990" + zoneHint(format, s.dialect.time.zone)
			return ConfigChange{"time_format", format, why}, true
		}
	}
	if s.goodTimes == 0 && len(s.unreadableTimes.all) > 0 {
		if format, why := guessFormat(s.unreadableTimes.all, s.dialect.time.zone); format != "" {
			s.dialect.time.format = format
			return ConfigChange{"time_format", format, why}, true
		}
	}
	return ConfigChange{}, false
}

// guessDelimiter looks for a delimiter that makes more of the wanted columns.
func (s *csvSurvey) guessDelimiter() (best rune, found bool) {
	if s.want == nil && s.file.filter.Time == "" && len(s.header) > 1 || s.countMissingColumns() == 0 &&
		len(s.header) > 1 {
		return 0, false
	}
	return s.betterDelimiter(s.wantedFileColumns())
}

// betterDelimiter looks for a delimiter with which the header has more of these names; without names, more of any.
func (s *csvSurvey) betterDelimiter(names []string) (best rune, found bool) {
	most := countKnownNames(names, s.header)
	for _, r := range ";\t,|" {
		if r == cmp.Or(s.dialect.delimiter, ',') {
			continue
		}
		d := s.dialect
		d.delimiter = r
		header, err := headerOf(s.file.path, &d)
		if err != nil {
			continue
		}
		if n := countKnownNames(names, header); n > most {
			best, most, found = r, n, true
		}
	}
	return best, found
}

// headerOf returns the names in the first line of a file.
func headerOf(path string, d *csvDialect) ([]string, error) {
	paths, err := expandPath(path)
	if err != nil {
		return nil, err
	}
	r, err := OpenFile(paths[0])
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return d.reader(r, nil).header(paths[0])
}

// countMissingColumns returns how many columns are not in the file.
func (s *csvSurvey) countMissingColumns() (n int) {
	for _, f := range s.Faults {
		if f.Reason == NoColumn || f.Reason == Unreadable {
			n++
		}
	}
	return n
}

// wantedFileColumns returns the names in the file of the wanted columns, as far as they are known.
func (s *csvSurvey) wantedFileColumns() (names []string) {
	switch {
	case s.want == nil:
	case s.linesAreReadings:
		for _, in := range inputsOf(s.want) {
			names = append(names, s.dialect.fileColumnName(in.Name))
		}
	default:
		for _, name := range s.want.columns() {
			names = append(names, s.dialect.fileColumnName(name))
		}
	}
	if name := s.file.filter.Time; name != "" {
		names = append(names, name)
	}
	return names
}

// countKnownNames returns how many of the names are in a header; without names, how many it has.
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

// countDecimal counts a cell by the decimal with which it is a number.
func (s *csvSurvey) countDecimal(text string, why Reason) {
	if why == "" {
		if strings.ContainsAny(text, ".,") {
			s.thisDecimalCells++
		}
		return
	}
	with := s.dialect
	with.decimalComma = !with.decimalComma
	_, why = with.number(text)
	if why == "" {
		s.otherDecimalCells++
	}
	if why == "" || s.want != nil { // without a task a column may be of texts
		s.nonNumbers++
	}
}

// changeDecimal replaces the decimal comma of the dialect with a point, or the point with a comma. If this character
// separates thousands in the file, it removes the separators instead and returns a change of the file.
func (s *csvSurvey) changeDecimal() ConfigChange {
	separator := ","
	if s.dialect.decimalComma {
		separator = "."
	}
	between := cmp.Or(s.dialect.delimiter, ',') == ','
	number, _, sure := s.thousands(separator)
	if number != "" && (sure || between && separator == ",") {
		s.dialect.thousands = separator
		return ConfigChange{Why: thousandsAdvice(number)}
	}
	s.dialect.decimalComma = !s.dialect.decimalComma
	doubt := ""
	if number != "" {
		plain, _, _ := withoutThousands(number, separator)
		doubt = fmt.Sprintf("; if %q means %s, export the file without thousands separators instead", number, plain)
	}
	switch {
	case separator == ".":
		return ConfigChange{"decimal", ".", "the numbers have a point" + doubt}
	case between:
		return ConfigChange{Why: `the numbers have a decimal comma, and there are commas between the columns: export the ` +
			`file with another delimiter, such as ";"`}
	}
	return ConfigChange{"decimal", ",", "the numbers have a decimal comma" + doubt}
}

// knownTimeLayouts are ways to write a time. Of two that fit the first is guessed.
var knownTimeLayouts = []string{"rfc3339", "unix", "unix_ms", "unix_us", "unix_ns", "2006-01-02 15:04:05",
	"2006-01-02 15:04",
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05-0700", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-07", "2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04:05 -07:00", "2006-01-02 15:04:05 MST", "2006-01-02", "02.01.2006 15:04:05",
	"02.01.2006 15:04", "2.1.2006 15:04", "02.01.2006", "02.01.06 15:04", "2006/01/02 15:04:05", "2006/01/02 15:04",
	"02/01/2006 15:04:05", "02/01/2006 15:04", "01/02/2006 15:04:05", "01/02/2006 15:04", "1/2/2006 15:04",
	"1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM", "20060102", "200601021504", "20060102150405", "20060102 15:04",
	time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate}

// guessFormat returns a format that all times have, and why; "" if there is none.
func guessFormat(texts []string, zone *time.Location) (format, why string) {
	var first []int64
	for _, layout := range knownTimeLayouts {
		at, err := parseAll(texts, timeFormat{layout, zone})
		switch {
		case err != nil:
		case format == "":
			format, first = layout, at
			why = "the times are as " + shorten(texts[0])
		case !slices.Equal(at, first):
			return format, fmt.Sprintf("%s, which %q fits, too", why, layout)
		}
	}
	return format, why + zoneHint(format, zone)
}

// zoneHint returns the hint to set a zone for times in the given format, or "" if they need none.
func zoneHint(format string, zone *time.Location) string {
	if zone != nil || !strings.Contains(format, "06") || hasOffset(format) || hasAbbreviation(format) {
		return ""
	}
	return "; with data.time_zone, if they are not in UTC"
}

// guessAbbreviation returns a layout that matches all times, if the zone abbreviation of at least one time is unknown
// in the given zone. It returns "" if no layout matches.
func guessAbbreviation(texts []string, zone *time.Location) (layout string, unknown *abbreviationError) {
	for _, layout := range knownTimeLayouts {
		if !hasAbbreviation(layout) {
			continue
		}
		unknown = nil
		if !slices.ContainsFunc(texts, func(text string) bool {
			_, err := timeFormat{layout, zone}.parse(text)
			return err != nil && !errors.As(err, &unknown)
		}) && unknown != nil {
			return layout, unknown
		}
	}
	return "", nil
}

// parseAll parses times in the given format. A time as a number must be between 1990 and 2100; otherwise the unit is
// probably wrong, and parseAll returns an error.
func parseAll(texts []string, f timeFormat) (all []int64, err error) {
	for _, text := range texts {
		at, err := f.parse(text)
		if err == nil && unitByFormat[f.format] > 0 && (at < minPlausibleUnix || at > maxPlausibleUnix) {
			err = strconv.ErrRange
		}
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, nil
}

// Where the unit of numbers is guessed, times from 1990 to 2100 are plausible.
const (
	minPlausibleUnix = 631_152_000 * int64(time.Second)
	maxPlausibleUnix = 4_102_444_800 * int64(time.Second)
)

// CheckFile adds warnings about a section that was validated before: the reason why its file cannot be read now,
// columns that are missing in the header, and paths that look like parts of topics.
func (c *Config) CheckFile(problems *spec.ProblemList, section string) {
	if c.kind() == SourceMQTT {
		c.checkPaths(problems, section)
	}
	if c.kind() != SourceCSV {
		return
	}
	source, err := openCSV(c)
	if err != nil {
		return // Check reports it
	}
	s := &csvSurvey{file: source.(*csvFile)}
	s.dialect = s.file.filter.dialect
	s.header, err = headerOf(c.CSV, &s.dialect)
	keys := map[string]string{} // of the section, by column
	if c.Time != "" {
		keys[c.Time] = "time"
	}
	for _, name := range sortedKeys(c.Columns) {
		keys[c.Columns[name]] = "columns." + name
	}
	for _, name := range sortedKeys(c.Where) {
		keys[name] = "where." + name
	}
	names := sortedKeys(keys)
	if d, found := s.betterDelimiter(names); found && (len(names) > 0 || len(s.header) <= 1) {
		problems.Require(false, section+".delimiter", "%s has %q between its columns; set it to that", c.CSV, string(d))
		return
	}
	if problems.AddError(section+".csv", err); err != nil {
		return
	}
	for _, name := range names {
		near := s.dialect.headerHint(c.CSV, []string{name})
		if n := spec.ClosestSpelling(name, s.header, normalizeColumnName); n != "" && near == "" {
			near = fmt.Sprintf("; did you mean %q?", n)
		}
		problems.Require(slices.Contains(s.header, name), section+"."+keys[name], "%s has no column %q in its header%s",
			c.CSV, name, near)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// WithChanges returns the section with changes.
func (c *Config) WithChanges(changes []ConfigChange) *Config {
	n := *c
	for _, change := range changes {
		switch change.Key {
		case "delimiter":
			n.Delimiter = change.Value
		case "decimal":
			n.Decimal = change.Value
		case "time_format":
			n.TimeFormat = change.Value
		}
	}
	return &n
}
