package data

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeFormat is how times are written: rfc3339, unix, unix_ms, or a layout of package time; empty takes RFC 3339 and
// seconds since 1970. Times without a zone are in Zone, or UTC.
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
	switch format {
	case "", "rfc3339", "unix", "unix_ms":
		return f, nil
	}
	sample := time.Date(2003, 4, 5, 17, 8, 9, 0, time.UTC)
	if back, err := time.ParseInLocation(format, sample.Format(format), time.UTC); err != nil ||
		back.YearDay() != sample.YearDay() || back.Year() != sample.Year() {
		return f, fmt.Errorf("%q is none of rfc3339, unix and unix_ms, and no layout such as \"2006-01-02 15:04:05\" "+
			"with year, month and day", format)
	}
	return f, nil
}

// parse reads a time, in nanoseconds since 1970, from there up to 2261.
func (f timeFormat) parse(text string) (int64, error) {
	switch f.format {
	case "":
		return parseTime(text)
	case "unix":
		return parseSince(text, time.Second)
	case "unix_ms":
		return parseSince(text, time.Millisecond)
	}
	layout, zone := f.format, f.zone
	if layout == "rfc3339" {
		layout = time.RFC3339
	}
	if zone == nil {
		zone = time.UTC
	}
	at, err := time.ParseInLocation(layout, text, zone)
	if err == nil && (at.Unix() < 0 || at.Year() > 2261) {
		err = strconv.ErrRange
	}
	return at.UnixNano(), err
}

// parseSince reads a number of units since 1970.
func parseSince(text string, unit time.Duration) (int64, error) {
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
	}
	return "as " + f.format
}
