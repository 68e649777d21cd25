package spec_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

func windows(t *testing.T, texts ...string) spec.TimeWindows {
	t.Helper()
	all, err := spec.ParseTimeWindows(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestWindowsContain(t *testing.T) {
	for _, c := range []struct {
		windows []string
		in, out []string // times inside and outside the windows, in March 2026, whose first day is a Sunday
	}{
		{[]string{"22:00-06:30"}, []string{"1 22:00:00", "1 23:59:59", "2 00:00:00", "2 06:29:59"},
			[]string{"1 21:59:59", "1 06:30:00", "1 12:00:00"}},
		{[]string{"00:00-24:00"}, []string{"1 00:00:00", "1 23:59:59"}, nil},
		{nil, []string{"1 00:00:00", "1 12:00:00"}, nil},
		{[]string{"Sat-Sun 00:00-24:00"}, []string{"1 00:00:00", "1 23:59:59", "7 00:00:00"},
			[]string{"2 00:00:00", "6 23:59:59"}},
		{[]string{"fri 22:00-06:00"}, []string{"6 22:00:00", "7 05:59:59"},
			[]string{"6 05:00:00", "7 06:00:00", "7 22:00:00"}},
		{[]string{"Fri-Mon 12:00-13:00", "Wed 01:00-02:00"},
			[]string{"1 12:00:00", "2 12:00:00", "6 12:59:00", "4 01:00:00"},
			[]string{"3 12:00:00", "4 12:00:00", "5 12:00:00"}},
		{[]string{"Sun 22:00-24:00"}, []string{"1 23:59:59"}, []string{"2 00:00:00"}},
	} {
		all := windows(t, c.windows...)
		for _, want := range []bool{true, false} {
			times := c.in
			if !want {
				times = c.out
			}
			for _, text := range times {
				at, err := time.Parse("2006-01 2 15:04:05", "2026-03 "+text)
				if err != nil {
					t.Fatal(err)
				}
				if all.Contain(at) != want {
					t.Errorf("%s in %v: %t", text, c.windows, !want)
				}
			}
		}
	}
}

// TestWindowsNext checks the next opening of a window across clock changes. In Berlin the clock changes from 2:00 to
// 3:00 on 29 March 2026, and from 3:00 back to 2:00 on 25 October. On Lord Howe Island the clock changes by half an
// hour.
func TestWindowsNext(t *testing.T) {
	for name, c := range map[string]struct {
		zone    string
		windows []string
		from    string // start time, in the time zone of the test
		want    string // expected time of the next opening, in UTC
	}{
		"inside":         {"UTC", []string{"22:00-06:00"}, "2026-03-01T23:00:07Z", "2026-03-01T23:00:07Z"},
		"tonight":        {"UTC", []string{"22:00-06:00"}, "2026-03-01T06:00:00Z", "2026-03-01T22:00:00Z"},
		"seconds before": {"UTC", []string{"22:00-06:00"}, "2026-03-01T21:59:59Z", "2026-03-01T22:00:00Z"},
		"next week":      {"UTC", []string{"Sun 10:00-11:00"}, "2026-03-01T11:00:00Z", "2026-03-08T10:00:00Z"},
		"the earlier of two": {"UTC", []string{"20:00-21:00", "08:00-09:00"}, "2026-03-01T10:00:00Z",
			"2026-03-01T20:00:00Z"},
		"another zone": {"Asia/Shanghai", []string{"22:00-06:00"}, "2026-03-01T12:00:00+08:00",
			"2026-03-01T14:00:00Z"},
		"a short night": {"Europe/Berlin", []string{"04:00-05:00"}, "2026-03-29T01:00:00+01:00",
			"2026-03-29T02:00:00Z"},
		"begins in the gap": {"Europe/Berlin", []string{"02:30-04:00"}, "2026-03-29T01:00:00+01:00",
			"2026-03-29T01:00:00Z"},
		"all in the gap": {"Europe/Berlin", []string{"02:10-02:50"}, "2026-03-29T01:00:00+01:00",
			"2026-03-30T00:10:00Z"},
		"a week's, in the gap": {"Europe/Berlin", []string{"Sun 02:10-02:50"}, "2026-03-29T01:00:00+01:00",
			"2026-04-05T00:10:00Z"},
		"a long night": {"Europe/Berlin", []string{"04:00-05:00"}, "2026-10-25T01:00:00+02:00",
			"2026-10-25T03:00:00Z"},
		"what comes twice": {"Europe/Berlin", []string{"02:10-02:50"}, "2026-10-25T01:00:00+02:00",
			"2026-10-25T00:10:00Z"},
		"comes twice": {"Europe/Berlin", []string{"02:10-02:50"}, "2026-10-25T02:50:00+02:00",
			"2026-10-25T01:10:00Z"},
		"half an hour, the gap": {"Australia/Lord_Howe", []string{"02:10-02:20"}, "2026-10-04T01:00:00+10:30",
			"2026-10-04T15:10:00Z"},
		"a zone of odd quarters": {"Asia/Kathmandu", []string{"22:00-23:00"}, "2026-03-01T12:00:00+05:45",
			"2026-03-01T16:15:00Z"},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		all := windows(t, c.windows...)
		got := all.NextTimeInside(from.In(zone(t, c.zone)))
		if want, _ := time.Parse(time.RFC3339, c.want); !got.Equal(want) || !all.Contain(got) {
			t.Errorf("%s: opens at %s, want %s", name, got.UTC().Format(time.RFC3339), c.want)
		}
	}
}

func TestParseWindow(t *testing.T) {
	for _, bad := range []string{"", "22:00", "22:00-6:30", "25:00-06:00", "22:60-06:00", "24:01-06:00", "06:00-06:00",
		"22:00-06:30x", "-1:00-06:00", "22:00 06:30", "Sat", "Sat-Sun", "Sa 22:00-06:00", "Sat- 22:00-06:00",
		"Sat-Sun-Mon 22:00-06:00", "22:00-06:00 Sat", "Sat  22:00-06:00", " 22:00-06:00"} {
		if w, err := spec.ParseTimeWindow(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, w)
		}
		if all, err := spec.ParseTimeWindows([]string{"00:00-01:00", bad}); err == nil {
			t.Errorf("%q is taken for %+v", bad, all)
		}
	}
	w, err := spec.ParseTimeWindow("Fri-Sun 22:00-06:30")
	want := spec.TimeWindow{Days: [7]bool{true, false, false, false, false, true, true}, From: 22 * time.Hour,
		To: 6*time.Hour + 30*time.Minute}
	if err != nil || w != want {
		t.Errorf("%+v, %v", w, err)
	}
	if all, err := spec.ParseTimeWindows(nil); err != nil || len(slices.Clone(all)) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
