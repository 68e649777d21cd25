package sources

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func parseTime(t *testing.T, format, zone, text string) (string, error) {
	t.Helper()
	f, err := newTimeFormat(format, zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := f.parseTime(text)
	return time.Unix(0, at).UTC().Format(time.RFC3339), err
}

// TestZoneAbbreviations checks that a time with a zone abbreviation is only accepted if the configured zone uses the
// abbreviation.
func TestZoneAbbreviations(t *testing.T) {
	const suffix = "2006-01-02 15:04:05 MST"
	for _, tt := range []struct{ format, zone, text, want string }{
		{time.UnixDate, "", "Sun Mar  1 00:00:00 CET 2026", ""},
		{time.UnixDate, "Europe/Berlin", "Sun Mar  1 00:00:00 CET 2026", "2026-02-28T23:00:00Z"},
		{time.UnixDate, "America/New_York", "Sun Mar  1 00:00:00 EST 2026", "2026-03-01T05:00:00Z"},
		{time.UnixDate, "Europe/Berlin", "Sun Mar  1 00:00:00 EST 2026", ""},
		{suffix, "", "2026-03-28 01:00:00 CET", ""},
		{suffix, "Europe/Berlin", "2026-03-29 03:00:00 CEST", "2026-03-29T01:00:00Z"},
		{suffix, "Europe/Berlin", "2026-03-01 00:00:00 UTC", "2026-03-01T00:00:00Z"},
		{suffix, "", "2026-03-01 00:00:00 UTC", "2026-03-01T00:00:00Z"},
		{suffix, "", "2026-03-01 00:00:00 GMT", "2026-03-01T00:00:00Z"},
		{suffix, "", "2026-03-01 00:00:00 GMT+2", ""},
		{suffix, "", "2026-03-01 00:00:00 +03", ""},
		{suffix, "Europe/Istanbul", "2026-03-01 00:00:00 +03", "2026-02-28T21:00:00Z"},
		{suffix, "", "2026-03-01 24:00:00 CET", ""},
		{suffix, "Europe/Berlin", "2026-03-01 24:00:00 CET", "2026-03-01T23:00:00Z"},
		{"2006-01-02 15:04 -0700 MST", "", "2026-03-01 00:00 +0000 WET", "2026-03-01T00:00:00Z"},
		{"2006-01-02 15:04 -0700 MST", "", "2026-03-01 00:00 +0100 CET", "2026-02-28T23:00:00Z"},
		{"", "", "2026-03-01T00:00:00+00:00", "2026-03-01T00:00:00Z"},
	} {
		got, err := parseTime(t, tt.format, tt.zone, tt.text)
		unknown := (*zoneAbbreviationError)(nil)
		switch {
		case tt.want == "" && !errors.As(err, &unknown):
			t.Errorf("%+v: %s, error %v, want an abbreviationError", tt, got, err)
		case tt.want != "" && (err != nil || got != tt.want):
			t.Errorf("%+v: %s, error %v", tt, got, err)
		}
	}
}

// TestAbbreviationAdvice checks that the advice for an unknown zone abbreviation names a time zone, whether or not the
// layout is configured.
func TestAbbreviationAdvice(t *testing.T) {
	const text = "Sun Mar  1 00:00:00 EST 2026"
	for _, format := range []string{"", time.UnixDate} {
		f, err := newTimeFormat(format, "")
		if err != nil {
			t.Fatal(err)
		}
		got := f.formatAdvice(text)
		if !strings.Contains(got, `set data.time_zone to a zone in which the abbreviation "EST" is used, such as `+
			`"America/New_York"`) || strings.Contains(got, "data.time_format") != (format == "") {
			t.Errorf("format %q: advice %q", format, got)
		}
	}
	if format, _ := guessTimeFormat([]string{text}, nil); format != "" {
		t.Errorf("without a zone the format is guessed as %q", format)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if format, _ := guessTimeFormat([]string{"Sun Mar  1 00:00:00 CET 2026"}, berlin); format != time.UnixDate {
		t.Errorf("with the zone the format is guessed as %q", format)
	}
}

// TestLayoutsThatMislead checks that layouts for which package time would parse wrong times are rejected.
func TestLayoutsThatMislead(t *testing.T) {
	for layout, want := range map[string]string{
		"2006-01-02 15:04:05+0100":      "the offset +0100: write the offset as -0700 or -07:00",
		"2006-01-02 15:04:05+01:00":     "the offset +01:00",
		"2006-01-02T15:04:05-0500":      "the offset -0500",
		"2006-01-02T15:04:05-05:00":     "the offset -05:00",
		"2006-01-02 15:04:05 +0800":     "the offset +0800",
		"2006-01-02 15:04:05 +0000":     "the offset +0000",
		"2006-01-02 15:04:05+05:30":     "the offset +05:30",
		"2006-01-02 15:04+0545":         "the offset +0545",
		"2006-01-02 15:04:05+01":        "the offset +01",
		"2006-01-02 15:04:05+08":        "the offset +08",
		"2006-01-02 15:04:05-08":        "the offset -08",
		"2006-01-02 15:04:05-01":        "the month twice",
		"2006-01-02 15:01:05":           "the month twice",
		"02.01.2006 (Jan) 15:04":        "the month twice",
		"2006-01-02 15:04 02":           "the day twice",
		"2006-01-02 15:03":              "the hour twice",
		"2006-01-02 15:04:04":           "the minute twice",
		"2006-01-02 15:04:05.5":         "the second twice",
		"02.01.2006 15:04 06":           "the year twice",
		"02.01.2006 15:04:05 GMT+01:00": "the offset +01:00",
	} {
		if _, err := newTimeFormat(layout, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", layout, err, want)
		}
	}
	for _, layout := range append([]string{"2006-01-02 15:04:05.000-0700", "2006-01-02 15:04:05,999999-07",
		"15:04:05 02-01-2006", "15:04 2006-01-02", "02-01-2006-15:04", "2006-01-02-03:00PM",
		"2006-01-02T15:04:05Z", "2006-002 15:04", "January _2, 2006 3:04PM", "Monday, 02-Jan-06 15:04:05 MST",
		"15:04:05.000 UTC, Mon Jan 2 2006",
		"2006-01-02 15:04:05 -0700 MST", "2006-01-02 15:04:05 Z0700", "2006-01-02 15:04:05-07:00:00", "2.1.06 15:04"},
		knownTimeLayouts...) {
		if _, err := newTimeFormat(layout, ""); err != nil {
			t.Errorf("%q: %v", layout, err)
		}
	}
}

// TestDateAlone checks that a date without a time is midnight if the layout starts with a complete date in any form.
func TestDateAlone(t *testing.T) {
	for _, tt := range []struct{ format, text, want string }{
		{"02.01.06 15:04", "01.03.26", "2026-03-01T00:00:00Z"},
		{"02.01.2006 15:04", "01.03.2026", "2026-03-01T00:00:00Z"},
		{"2006-01-02T15:04:05", "2026-03-01", "2026-03-01T00:00:00Z"},
		{"2006-002 15:04", "2026-060", "2026-03-01T00:00:00Z"},
		{"06 01 02 15:04", "26", ""},
		{"06 01 02 15:04", "26 03", ""},
	} {
		if got, err := parseTime(t, tt.format, "", tt.text); (err == nil) != (tt.want != "") ||
			err == nil && got != tt.want {
			t.Errorf("%+v: %s, %v", tt, got, err)
		}
	}
}

// TestPlausibleFormat checks that for times that are too early, another time format is found in which the times are
// between 1990 and 2100.
func TestPlausibleFormat(t *testing.T) {
	for _, tt := range []struct{ format, first, last, want string }{
		{"", "20260301", "20260628", "20060102"},
		{"unix", "20260301", "20260628", "20060102"},
		{"unix_ms", "202603010000", "202603052300", "200601021504"},
		{"unix_us", "20260301000000", "20260305230000", "20060102150405"},
		{"unix_ms", "1772323200", "1772326800", "unix"},
		{"", "20260301", "20261301", ""},
		{"", "20260301", "20260628.5", ""},
		{"", "19600301", "19600628", ""},
		{"", "0", "20260301", ""},
		{"rfc3339", "1970-08-23T11:51:41Z", "1970-08-23T11:51:41Z", ""},
	} {
		f, err := newTimeFormat(tt.format, "")
		if err != nil {
			t.Fatal(err)
		}
		first, errFirst := f.parseTime(tt.first)
		last, errLast := f.parseTime(tt.last)
		if got := f.findPlausibleFormat(first, last); errFirst != nil || errLast != nil || got != tt.want {
			t.Errorf("%+v: %q, %v, %v", tt, got, errFirst, errLast)
		}
	}
	f := timeFormat{format: "unix_ms"}
	if got := f.unitAdvice(20260301 * int64(time.Millisecond)); got != `: set data.time_format to "20060102"` {
		t.Errorf("advice %q", got)
	}
}
