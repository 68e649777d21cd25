package sources

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/rows"
)

// knownTimeLayouts contains common time formats in the order of preference.
var knownTimeLayouts = []string{"rfc3339", "unix", "unix_ms", "unix_us", "unix_ns", "2006-01-02 15:04:05",
	"2006-01-02 15:04",
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05-0700", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-07", "2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04:05 -07:00", "2006-01-02 15:04:05 MST", "2006-01-02", "02.01.2006 15:04:05",
	"02.01.2006 15:04", "2.1.2006 15:04", "02.01.2006", "02.01.06 15:04", "2006/01/02 15:04:05", "2006/01/02 15:04",
	"02/01/2006 15:04:05", "02/01/2006 15:04", "01/02/2006 15:04:05", "01/02/2006 15:04", "1/2/2006 15:04",
	"1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM", "20060102", "200601021504", "20060102150405", "20060102 15:04",
	time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate}

// guessTimeFormat returns a format that matches all times, and the reason. It returns "" if no format matches.
func guessTimeFormat(texts []string, zone *time.Location) (format, why string) {
	var first []int64
	for _, layout := range knownTimeLayouts {
		at, err := parseAllTimes(texts, timeFormat{layout, zone})
		switch {
		case err != nil:
		case format == "":
			format, first = layout, at
			why = "the times have the format of " + data.QuoteForMessage(texts[0])
		case !slices.Equal(at, first):
			return format, fmt.Sprintf("%s, but the time layout %q also matches these times", why, layout)
		}
	}
	return format, why + zoneHint(format, zone)
}

// zoneHint returns the hint to set a time zone for the given format, or "" if none is required.
func zoneHint(format string, zone *time.Location) string {
	if zone != nil || !strings.Contains(format, "06") || layoutHasOffset(format) || layoutHasOnlyAbbreviation(format) {
		return ""
	}
	return "; also set data.time_zone if they are not in UTC"
}

// guessAbbreviationLayout returns a layout that matches all times, if the zone abbreviation of at least one time is
// unknown in the given zone. It returns "" if no layout matches.
func guessAbbreviationLayout(texts []string, zone *time.Location) (layout string, unknown *zoneAbbreviationError) {
	for _, layout := range knownTimeLayouts {
		if !layoutHasOnlyAbbreviation(layout) {
			continue
		}
		unknown = nil
		if !slices.ContainsFunc(texts, func(text string) bool {
			_, err := timeFormat{layout, zone}.parseTime(text)
			return err != nil && !errors.As(err, &unknown)
		}) && unknown != nil {
			return layout, unknown
		}
	}
	return "", nil
}

// parseAllTimes parses times in the given format. It returns an error for a numeric time that is not between 1990 and
// 2100, because the unit is then probably wrong.
func parseAllTimes(texts []string, f timeFormat) (all []int64, err error) {
	for _, text := range texts {
		at, err := f.parseTime(text)
		if err == nil && unitByFormat[f.format] > 0 && (at < rows.MinPlausibleUnixNanos ||
			at > rows.MaxPlausibleUnixNanos) {
			err = strconv.ErrRange
		}
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, nil
}
