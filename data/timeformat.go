package data

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unitByFormat contains the unit of each time format that is a number since 1970.
var unitByFormat = map[string]time.Duration{"unix": time.Second, "unix_ms": time.Millisecond,
	"unix_us": time.Microsecond, "unix_ns": time.Nanosecond}

// timeFormat is the format of times: rfc3339, unix, unix_ms, unix_us, unix_ns, or a layout of package time. The empty
// format accepts RFC 3339 and seconds since 1970. Times without a zone are in zone, or in UTC if zone is nil.
type timeFormat struct {
	format string
	zone   *time.Location
}

// newTimeFormat checks the format and looks up the zone.
func newTimeFormat(format, zone string) (timeFormat, error) {
	f := timeFormat{format: format}
	if zone != "" {
		var err error
		if f.zone, err = time.LoadLocation(zone); err != nil {
			return f, fmt.Errorf("the system knows no time zone %q; write it as Europe/Berlin", zone)
		}
	}
	if format == "" || format == "rfc3339" || unitByFormat[format] > 0 {
		return f, nil
	}
	sample := time.Date(2003, 4, 5, 17, 8, 9, 0, time.UTC)
	if back, err := time.ParseInLocation(format, sample.Format(format), time.UTC); err != nil ||
		back.YearDay() != sample.YearDay() || back.Year() != sample.Year() {
		return f, fmt.Errorf("%q is none of rfc3339, unix, unix_ms, unix_us and unix_ns, nor a Go time layout with "+
			"year, month and day, such as \"2006-01-02 15:04:05\"", format)
	}
	return f, nil
}

// parse returns a time in nanoseconds since 1970. It accepts the years 1970 to 2261. With a layout that has a time of
// day, 24:00 is midnight at the end of the day, and a date without a time is midnight at its beginning.
func (f timeFormat) parse(text string) (int64, error) {
	if unit := unitByFormat[f.format]; unit > 0 {
		return parseSince(text, unit)
	}
	layout, zone := f.format, f.zone
	if zone == nil {
		zone = time.UTC
	}
	switch layout {
	case "":
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return parseSince(text, time.Second)
		}
		layout = time.RFC3339
	case "rfc3339":
		layout = time.RFC3339
	}
	at, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		at, err = parseMidnight(layout, text, zone, err)
	}
	if err == nil && (at.Unix() < 0 || at.Year() > 2261) {
		err = strconv.ErrRange
	}
	return at.UnixNano(), err
}

// parseMidnight parses a time that is written as 24:00, or as a date alone. It returns err for any other text.
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
	if i := strings.IndexAny(layout, " T"); i > 0 && strings.Contains(layout[:i], "2006") {
		if at, wrong := time.ParseInLocation(layout[:i], text, zone); wrong == nil {
			return at, nil
		}
	}
	return time.Time{}, err
}

// parseSince reads a number of units since 1970.
func parseSince(text string, unit time.Duration) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil { // a float64 would round nanoseconds
		if n < 0 || n > int64(math.MaxInt64/unit) {
			return 0, strconv.ErrRange
		}
		return n * int64(unit), nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n >= 0 && n < float64(math.MaxInt64/unit)) {
		err = strconv.ErrRange
	}
	if err != nil {
		return 0, err
	}
	whole, part := math.Modf(n)
	return int64(whole)*int64(unit) + int64(math.Round(part*float64(unit))), nil
}

// example says how a time looks.
func (f timeFormat) example() string {
	switch f.format {
	case "":
		return "as 2026-03-01T12:00:00Z or in seconds since 1970"
	case "rfc3339":
		return "as 2026-03-01T12:00:00Z"
	case "unix":
		return "in seconds since 1970"
	case "unix_ms":
		return "in milliseconds since 1970"
	case "unix_us":
		return "in microseconds since 1970"
	case "unix_ns":
		return "in nanoseconds since 1970"
	}
	return "as " + f.format
}

// formatAdvice returns the advice to set another format, if text is not a time in this format but in a known one. It
// returns "" if no known format fits.
func (f timeFormat) formatAdvice(text string) string {
	if format, _ := guessFormat([]string{text}, f.zone); format != "" {
		return fmt.Sprintf(": set data.time_format to %q", format)
	}
	return ""
}

// unitAdvice returns the advice to set another unit for a time in nanoseconds that is too early, or "" if no unit fits.
func (f timeFormat) unitAdvice(at int64) string {
	if format := f.plausibleUnit(at, at); format != "" {
		return fmt.Sprintf(": set data.time_format to %q", format)
	}
	return ""
}

// plausibleUnit returns the format with a larger unit in which times are between 1990 and 2100, or "" if none fits.
// first and last are the bounds of the times in nanoseconds, as parsed in this format.
func (f timeFormat) plausibleUnit(first, last int64) string {
	unit := unitByFormat[cmp.Or(f.format, "unix")]
	if unit == 0 {
		return ""
	}
	for _, format := range []string{"unix", "unix_ms", "unix_us"} {
		factor := float64(unitByFormat[format]) / float64(unit)
		if factor > 1 && float64(first)*factor >= float64(minPlausibleUnix) &&
			float64(last)*factor <= float64(maxPlausibleUnix) {
			return format
		}
	}
	return ""
}
