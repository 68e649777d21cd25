package data

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// Often a file that cannot be read is as it should be, and the configuration is not. These say which key is wrong, from
// what is in the file.

// guess returns a change of the dialect that the file needs, if there is one, and makes it.
func (s *csvSurvey) guess() (Change, bool) {
	if d, found := s.guessDelimiter(); found {
		c := Change{"delimiter", string(d), fmt.Sprintf("the file has %q between its columns", string(d))}
		s.dialect.delimiter = d
		return c, true
	}
	if s.other > s.these && s.other > s.strange/2 {
		return s.changeDecimal(), true
	}
	if s.good > 0 && len(s.times.all) == 0 && s.Last.UnixNano() < minPlausibleUnix {
		if format := s.dialect.time.plausibleUnit(s.First.UnixNano(), s.Last.UnixNano()); format != "" {
			s.dialect.time.format = format
			return Change{"time_format", format, "the times would be before 1990"}, true
		}
	}
	if s.good == 0 && len(s.times.all) > 0 {
		if format, why := guessFormat(s.times.all, s.dialect.time.zone); format != "" {
			s.dialect.time.format = format
			return Change{"time_format", format, why}, true
		}
	}
	return Change{}, false
}

// guessDelimiter looks for a delimiter that makes more of the wanted columns.
func (s *csvSurvey) guessDelimiter() (best rune, found bool) {
	if s.want == nil && s.file.filter.Time == "" && len(s.header) > 1 || s.missing() == 0 && len(s.header) > 1 {
		return 0, false
	}
	return s.betterDelimiter(s.wanted())
}

// betterDelimiter looks for a delimiter with which the header has more of these names; without names, more of any.
func (s *csvSurvey) betterDelimiter(names []string) (best rune, found bool) {
	most := known(names, s.header)
	for _, r := range ";\t,|" {
		d := s.dialect
		d.delimiter = r
		header, err := headerOf(s.file.path, &d)
		if err != nil {
			continue
		}
		if n := known(names, header); n > most {
			best, most, found = r, n, true
		}
	}
	return best, found
}

// headerOf returns the names in the first line of a file.
func headerOf(path string, d *dialect) ([]string, error) {
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

// missing returns how many columns are not in the file.
func (s *csvSurvey) missing() (n int) {
	for _, f := range s.Faults {
		if f.Reason == NoColumn || f.Reason == Unreadable {
			n++
		}
	}
	return n
}

// wanted returns the names in the file of the wanted columns, as far as they are known.
func (s *csvSurvey) wanted() (names []string) {
	switch {
	case s.want == nil:
	case s.readings:
		for _, in := range inputsOf(s.want) {
			names = append(names, s.dialect.named(in.Name))
		}
	default:
		for _, name := range s.want.columns() {
			names = append(names, s.dialect.named(name))
		}
	}
	if name := s.file.filter.Time; name != "" {
		names = append(names, name)
	}
	return names
}

// known returns how many of the names are in a header; without names, how many it has.
func known(names, header []string) (n int) {
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

// decimal counts a cell by the decimal with which it is a number.
func (s *csvSurvey) decimal(text string, why Reason) {
	if why == "" {
		if strings.ContainsAny(text, ".,") {
			s.these++
		}
		return
	}
	with := s.dialect
	with.comma = !with.comma
	_, why = with.number(text)
	if why == "" {
		s.other++
	}
	if why == "" || s.want != nil { // without a task a column may be of texts
		s.strange++
	}
}

// changeDecimal makes the decimal the other one.
func (s *csvSurvey) changeDecimal() Change {
	s.dialect.comma = !s.dialect.comma
	if !s.dialect.comma {
		return Change{"decimal", ".", "the numbers have a point"}
	}
	if d := s.dialect.delimiter; d == 0 || d == ',' {
		return Change{Why: `the numbers have a decimal comma, and there are commas between the columns: export the ` +
			`file with another delimiter, such as ";"`}
	}
	return Change{"decimal", ",", "the numbers have a decimal comma"}
}

// layouts are ways to write a time. Of two that fit the first is guessed.
var layouts = []string{"rfc3339", "unix", "unix_ms", "unix_us", "unix_ns", "2006-01-02 15:04:05", "2006-01-02 15:04",
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05 -0700", "2006-01-02", "02.01.2006 15:04:05", "02.01.2006 15:04", "2.1.2006 15:04",
	"02.01.2006", "2006/01/02 15:04:05", "2006/01/02 15:04", "02/01/2006 15:04:05", "02/01/2006 15:04",
	"01/02/2006 15:04:05", "01/02/2006 15:04", "1/2/2006 15:04", "1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM",
	"20060102150405", "20060102 15:04", time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate}

// guessFormat returns a format that all times have, and why; "" if there is none.
func guessFormat(texts []string, zone *time.Location) (format, why string) {
	var first []int64
	for _, layout := range layouts {
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
	if zone == nil && strings.Contains(format, "2006") && !strings.Contains(format, "07") &&
		!strings.Contains(format, "MST") { // a time of some zone
		why += "; with data.time_zone, if they are not in UTC"
	}
	return format, why
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

// mend says what to do about faults.
func (s *csvSurvey) mend() {
	for _, f := range s.Faults {
		switch {
		case f.Mend != "":
		case f.Reason == NoColumn && s.want != nil && s.want.Recipe != nil && !s.readings:
			f.Mend = "if the lines are readings, name the column of their time (data.time)"
		case f.Reason == NoColumn && f.Column != "":
			f.Mend = s.mendColumn(f.Column)
		case f.Reason == grid.BadTime && s.good < f.Count:
			f.Mend = "set data.time_format, to a layout of Go that writes the moment 2006-01-02 15:04:05 in that way"
		case f.Reason == grid.UnknownClass:
			f.Mend = s.mendClass(f)
		}
	}
}

// mendColumn says which column may be meant.
func (s *csvSurvey) mendColumn(column string) string {
	name := s.dialect.named(column)
	near := spec.Closest(name, s.Others, foldColumn)
	_, condition := s.file.filter.Where[column]
	hint := strings.TrimPrefix(s.dialect.headerHint(s.path, []string{name}), "; ")
	switch {
	case hint != "":
		return hint
	case slices.Contains(s.header, name):
		return "rename one of them, or name another column in data.columns"
	case near == "":
		return "the file has the columns " + list(s.header)
	case column == s.file.filter.Time:
		return fmt.Sprintf("did you mean %q? set data.time to it", near)
	case condition:
		return fmt.Sprintf("did you mean %q? correct data.where", near)
	}
	return fmt.Sprintf("did you mean %q? set data.columns: {%q: %q}", near, column, near)
}

// foldColumn is what counts of a column's name: PM2.5 (µg/m³) is pm25.
func foldColumn(name string) string {
	if i := strings.IndexAny(name, "(["); i > 0 {
		name = name[:i]
	}
	const most = 200 // runes, which keeps the distance cheap
	folded := []rune(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name))
	return string(folded[:min(len(folded), most)])
}

// mendClass names the classes of an input.
func (s *csvSurvey) mendClass(f *Faults) string {
	switch set := s.labels.LabelSet; {
	case set.Classes > 0:
		return fmt.Sprintf("the task expects whole numbers from 0 to %d; only rows with other targets are skipped",
			set.Classes-1)
	case set.Signs:
		return "the task expects 0 and 1, or -1 and 1; only rows with other targets are skipped"
	}
	for _, x := range s.columns {
		if x.Name == f.Column {
			return "its classes are " + list(x.Texts)
		}
	}
	return ""
}

// CheckFile adds warnings about a section that was validated before: the reason why its file cannot be read now,
// columns that are missing in the header, and paths that look like parts of topics.
func (c *Config) CheckFile(problems *spec.Check, section string) {
	if c.kind() == MQTT {
		c.checkPaths(problems, section)
	}
	if c.kind() != CSV {
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
		problems.Need(false, section+".delimiter", "%s has %q between its columns; set it to that", c.CSV, string(d))
		return
	}
	if problems.Valid(section+".csv", err); err != nil {
		return
	}
	for _, name := range names {
		near := s.dialect.headerHint(c.CSV, []string{name})
		if n := spec.Closest(name, s.header, foldColumn); n != "" && near == "" {
			near = fmt.Sprintf("; did you mean %q?", n)
		}
		problems.Need(slices.Contains(s.header, name), section+"."+keys[name], "%s has no column %q in its header%s",
			c.CSV, name, near)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Changed returns the section with changes.
func (c *Config) Changed(changes []Change) *Config {
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
