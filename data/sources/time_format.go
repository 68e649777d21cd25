package sources

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/rows"
)

// unitByFormat contains the unit of each numeric time format.
var unitByFormat = map[string]time.Duration{"unix": time.Second, "unix_ms": time.Millisecond,
	"unix_us": time.Microsecond, "unix_ns": time.Nanosecond}

// timeFormat is a format of times: rfc3339, unix, unix_ms, unix_us, unix_ns, or a layout of package time. The empty
// format accepts RFC 3339 and seconds since 1970. Times without a zone are in zone, or in UTC if zone is nil.
type timeFormat struct {
	format string
	zone   *time.Location
}

// newTimeFormat validates the format and loads the zone.
func newTimeFormat(format, zone string) (timeFormat, error) {
	f := timeFormat{format: format}
	if zone != "" {
		var err error
		if f.zone, err = time.LoadLocation(zone); err != nil {
			return f, fmt.Errorf("unknown time zone %q; use a name such as Europe/Berlin", zone)
		}
	}
	if format == "" || format == "rfc3339" || unitByFormat[format] > 0 {
		return f, nil
	}
	if err := checkTimeLayout(format); err != nil {
		return f, err
	}
	sample := time.Date(2003, 4, 5, 17, 8, 9, 0, time.UTC)
	if back, err := time.ParseInLocation(format, sample.Format(format), time.UTC); err != nil ||
		back.YearDay() != sample.YearDay() || back.Year() != sample.Year() {
		return f, fmt.Errorf("unknown time format %q; use rfc3339, unix, unix_ms, unix_us, unix_ns or a Go time "+
			"layout with year, month and day, such as \"2006-01-02 15:04:05\"", format)
	}
	return f, nil
}

// timeLayoutElements lists the elements of a Go time layout and the part of the time that each represents. They are
// matched in this order.
var timeLayoutElements = []struct{ text, part string }{
	{"January", "month"}, {"Jan", "month"}, {"Monday", "weekday"}, {"Mon", "weekday"}, {"MST", "abbreviation"},
	{"01", "month"}, {"02", "day"}, {"03", "hour"}, {"04", "minute"}, {"05", "second"}, {"06", "year"},
	{"002", "day of the year"}, {"15", "hour"}, {"1", "month"}, {"2006", "year"}, {"2", "day"}, {"_2006", "year"},
	{"_2", "day"}, {"__2", "day of the year"}, {"3", "hour"}, {"4", "minute"}, {"5", "second"}, {"-07", "offset"},
	{"Z07", "offset"},
}

// firstTimeLayoutElement returns the element at the start of a time layout and the part of the time that the element
// represents. Both are empty if the layout starts with other text.
func firstTimeLayoutElement(layout string) (text, part string) {
	for _, e := range timeLayoutElements {
		if strings.HasPrefix(layout, e.text) {
			return e.text, e.part
		}
	}
	return "", ""
}

// countTimeParts returns the number of elements in a layout for each part of the time.
func countTimeParts(layout string) map[string]int {
	parts := map[string]int{}
	for layout != "" {
		text, part := firstTimeLayoutElement(layout)
		if part != "" {
			parts[part]++
		}
		layout = layout[max(1, len(text)):]
	}
	return parts
}

// checkTimeLayout returns an error if a layout contains a literal offset, such as +0100, or the same part of the time
// twice. Package time accepts such layouts but then parses wrong times. In +0100, for example, 01 means the month.
func checkTimeLayout(layout string) error {
	seen := map[string]bool{}
	for i := 0; i < len(layout); {
		text, part := firstTimeLayoutElement(layout[i:])
		if offset := literalZoneOffset(layout[i:]); offset != "" && part != "offset" && seen["hour"] {
			return fmt.Errorf("the time layout %q contains the offset %s: write the offset as -0700 or -07:00, as in "+
				"\"2006-01-02 15:04:05-0700\"", layout, offset)
		}
		if part != "" && seen[part] {
			return fmt.Errorf("the time layout %q contains the %s twice: write each part of the time once, and the "+
				"offset as -0700 or -07:00", layout, part)
		}
		seen[part] = true
		i += max(1, len(text))
	}
	return nil
}

// literalZoneOffset returns the offset at the start of a text, such as +0100, +05:30 or +01. It returns "" for other
// texts, and for an offset such as -01, which may be part of a date.
func literalZoneOffset(text string) string {
	digits := len(text) - len(strings.TrimLeft(text[1:], "0123456789")) - 1
	switch {
	case text[0] != '+' && text[0] != '-' || digits != 2 && digits != 4 || text[1:3] > "14":
		return ""
	case digits == 4 && strings.Contains("00 30 45", text[3:5]):
		return text[:5]
	case digits == 2 && len(text) >= 6 && text[3] == ':' && strings.Contains("00 30 45", text[4:6]):
		return text[:6]
	case digits == 2 && (text[0] == '+' || len(text) == 3 && text[1:] > "06"):
		return text[:3]
	}
	return ""
}

// zoneAbbreviationError reports that the zone abbreviation of a time, such as CET, is not used in the configured zone.
// Package time treats such times, and GMT+2, as UTC.
type zoneAbbreviationError struct{ abbreviation string }

func (e *zoneAbbreviationError) Error() string {
	return fmt.Sprintf("the time zone set in data.time_zone has no abbreviation %q", e.abbreviation)
}

// zoneByAbbreviation contains a zone for each of the most common abbreviations.
var zoneByAbbreviation = map[string]string{"CET": "Europe/Berlin", "CEST": "Europe/Berlin", "WET": "Europe/Lisbon",
	"WEST": "Europe/Lisbon", "EET": "Europe/Helsinki", "EEST": "Europe/Helsinki", "BST": "Europe/London",
	"MSK": "Europe/Moscow", "EST": "America/New_York", "EDT": "America/New_York", "CST": "America/Chicago",
	"CDT": "America/Chicago", "MST": "America/Denver", "MDT": "America/Denver", "PST": "America/Los_Angeles",
	"PDT": "America/Los_Angeles", "JST": "Asia/Tokyo", "KST": "Asia/Seoul", "IST": "Asia/Kolkata",
	"AEST": "Australia/Sydney", "AEDT": "Australia/Sydney"}

// zoneAdvice returns the advice to set a zone in which the abbreviation is used.
func (e *zoneAbbreviationError) zoneAdvice() string {
	zone, found := zoneByAbbreviation[e.abbreviation]
	if strings.ContainsAny(e.abbreviation, "+-") {
		return fmt.Sprintf(
			"replace MST in data.time_format with -07, which matches an offset such as +03: %q is not an abbreviation",
			e.abbreviation)
	}
	if !found {
		return fmt.Sprintf(
			"set data.time_zone to a zone in which the abbreviation %q is used, for example \"Europe/Berlin\" for CET",
			e.abbreviation)
	}
	return fmt.Sprintf("set data.time_zone to a zone in which the abbreviation %q is used, such as %q", e.abbreviation,
		zone)
}

// checkZoneAbbreviation returns a *zoneAbbreviationError if package time does not know the zone abbreviation of a time,
// and has therefore invented a zone. zone is the configured zone.
func checkZoneAbbreviation(at time.Time, layout string, zone *time.Location) error {
	if at.Location() == zone || at.Location() == time.UTC {
		return nil
	}
	name, _ := at.Zone()
	if name == "" || name == "GMT" || layoutHasOffset(layout) {
		return nil
	}
	return &zoneAbbreviationError{name}
}

// layoutHasOffset reports whether a validated layout contains a numeric offset.
func layoutHasOffset(layout string) bool {
	return strings.Contains(layout, "-07") || strings.Contains(layout, "Z07")
}

// layoutHasOnlyAbbreviation reports whether a zone abbreviation is the only indication of the offset in a layout.
func layoutHasOnlyAbbreviation(layout string) bool {
	return strings.Contains(layout, "MST") && !layoutHasOffset(layout)
}

// parseTime returns a time in nanoseconds since 1970. It accepts the years 1970 to 2261. With a layout that has a time
// of day, 24:00 is midnight at the end of the day, and a date without a time is midnight at its start. The error is a
// *zoneAbbreviationError if only the zone abbreviation is unknown.
func (f timeFormat) parseTime(text string) (int64, error) {
	if unit := unitByFormat[f.format]; unit > 0 {
		return parseUnixTime(text, unit)
	}
	layout, zone := f.format, f.zone
	if zone == nil {
		zone = time.UTC
	}
	switch layout {
	case "":
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return parseUnixTime(text, time.Second)
		}
		layout = time.RFC3339
	case "rfc3339":
		layout = time.RFC3339
	}
	at, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		at, err = parseMidnight(layout, text, zone, err)
	}
	switch {
	case err != nil:
	case at.Unix() < 0 || at.Year() > 2261:
		err = strconv.ErrRange
	default:
		err = checkZoneAbbreviation(at, layout, zone)
	}
	return at.UnixNano(), err
}

// parseMidnight parses a time that is written as 24:00 or as a date alone. It returns err for any other text.
func parseMidnight(layout, text string, zone *time.Location, err error) (time.Time, error) {
	for i := range len(text) - 1 {
		if text[i:i+2] != "24" {
			continue
		}
		at, wrong := time.ParseInLocation(layout, text[:i]+"00"+text[i+2:], zone)
		if hour, minute, second := at.Clock(); wrong == nil && hour == 0 && minute == 0 && second == 0 {
			return at.AddDate(0, 0, 1), nil
		}
	}
	if i := strings.IndexAny(layout, " T"); i > 0 {
		date := countTimeParts(layout[:i])
		if at, wrong := time.ParseInLocation(layout[:i], text, zone); wrong == nil && date["year"] > 0 &&
			(date["month"] > 0 && date["day"] > 0 || date["day of the year"] > 0) {
			return at, nil
		}
	}
	return time.Time{}, err
}

// parseUnixTime parses a number of units since 1970.
func parseUnixTime(text string, unit time.Duration) (int64, error) {
	// Parse integers exactly, because a float64 would round nanoseconds.
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 || n > int64(math.MaxInt64/unit) {
			return 0, strconv.ErrRange
		}
		return n * int64(unit), nil
	}
	// The fraction is parsed on its own, because a float64 would round a time with a fraction to 0.1 µs.
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseUint(whole, 10, 63); err == nil && n < uint64(math.MaxInt64/unit) && isDigits(fraction) {
		part, err := strconv.ParseFloat("0."+fraction, 64)
		return int64(n)*int64(unit) + int64(math.Round(part*float64(unit))), err
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n >= 0 && n < float64(math.MaxInt64/unit)) {
		err = strconv.ErrRange
	}
	if err != nil {
		return 0, err
	}
	units, part := math.Modf(n)
	return int64(units)*int64(unit) + int64(math.Round(part*float64(unit))), nil
}

// exampleTime describes the format with an example, for error messages.
func (f timeFormat) exampleTime() string {
	switch f.format {
	case "":
		return "in the format 2026-03-01T12:00:00Z or in seconds since 1970"
	case "rfc3339":
		return "in the format 2026-03-01T12:00:00Z"
	case "unix":
		return "in seconds since 1970"
	case "unix_ms":
		return "in milliseconds since 1970"
	case "unix_us":
		return "in microseconds since 1970"
	case "unix_ns":
		return "in nanoseconds since 1970"
	}
	if layoutHasOnlyAbbreviation(f.format) {
		return fmt.Sprintf("in the format %s, where MST is an abbreviation used in data.time_zone (%s)", f.format,
			cmp.Or(f.zone, time.UTC))
	}
	return "in the format " + f.format
}

// formatAdvice returns the advice to set another format or zone, if text is a time in another known format. It returns
// "" if no known format fits.
func (f timeFormat) formatAdvice(text string) string {
	unknown := (*zoneAbbreviationError)(nil)
	if _, err := f.parseTime(text); errors.As(err, &unknown) {
		return ": " + unknown.zoneAdvice()
	}
	if format, _ := guessTimeFormat([]string{text}, f.zone); format != "" {
		return fmt.Sprintf(": set data.time_format to %q", format)
	}
	if format, unknown := guessAbbreviationLayout([]string{text}, f.zone); format != "" {
		return fmt.Sprintf(": set data.time_format to %q, and %s", format, unknown.zoneAdvice())
	}
	return ""
}

// unitAdvice returns the advice to set another format for a time in nanoseconds that is too early, or "" if no format
// fits.
func (f timeFormat) unitAdvice(at int64) string {
	if format := f.findPlausibleFormat(at, at); format != "" {
		return fmt.Sprintf(": set data.time_format to %q", format)
	}
	return ""
}

// findPlausibleFormat returns the format with a larger unit, or with a date as a number, for which the times are
// between 1990 and 2100. It returns "" if no format fits. first and last are the earliest and latest time in
// nanoseconds, as parsed in the current format.
func (f timeFormat) findPlausibleFormat(first, last int64) string {
	unit := f.numericTimeUnit()
	if unit == 0 {
		return ""
	}
	for _, format := range []string{"unix", "unix_ms", "unix_us"} {
		factor := float64(unitByFormat[format]) / float64(unit)
		if factor > 1 && float64(first)*factor >= float64(rows.MinPlausibleUnixNanos) &&
			float64(last)*factor <= float64(rows.MaxPlausibleUnixNanos) {
			return format
		}
	}
	if first%int64(unit) != 0 || last%int64(unit) != 0 {
		return ""
	}
	for _, layout := range numericTimeLayouts {
		if _, err := parseAllTimes([]string{strconv.FormatInt(first/int64(unit), 10),
			strconv.FormatInt(last/int64(unit), 10)}, timeFormat{layout, f.zone}); err == nil {
			return layout
		}
	}
	return ""
}

// numericTimeLayouts contains the layouts of times that are also valid numbers.
var numericTimeLayouts = []string{"20060102", "200601021504", "20060102150405"}

// numericTimeUnit returns the unit of numeric times, or 0 if this format has no numeric times.
func (f timeFormat) numericTimeUnit() time.Duration { return unitByFormat[cmp.Or(f.format, "unix")] }

// excelDay interprets the number from which the time at, in nanoseconds, was parsed as an Excel day number, counted
// from 1899-12-30. found is false if the date is not between 1990 and 2100.
func (f timeFormat) excelDay(at int64) (date time.Time, found bool) {
	const first, last = 32_874, 73_415
	unit := f.numericTimeUnit()
	if unit == 0 || at/int64(unit) < first || at/int64(unit) > last {
		return time.Time{}, false
	}
	return time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(at/int64(unit))), true
}
