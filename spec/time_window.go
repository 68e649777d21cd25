package spec

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// TimeWindow is a window of local time on certain days of the week. If To is not later than From, the window spans
// midnight and belongs to the day on which it starts.
type TimeWindow struct {
	Days     [7]bool       // days on which the window starts, indexed by time.Weekday
	From, To time.Duration // start and end as local time since midnight
}

// TimeWindows is a list of time windows. An empty list covers the whole week.
type TimeWindows []TimeWindow

// weekdayNames contains the names of the days, indexed by time.Weekday.
var weekdayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// ParseTimeWindows parses a comma-separated list of time windows, such as "22:00-06:30, Sat-Sun 00:00-24:00".
func ParseTimeWindows(texts []string) (all TimeWindows, err error) {
	for _, text := range texts {
		w, err := ParseTimeWindow(text)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// ParseTimeWindow parses one time window, such as "Sat-Sun 00:00-24:00".
func ParseTimeWindow(text string) (TimeWindow, error) {
	on, part, some := strings.Cut(text, " ")
	if !some {
		part = text
	}
	var h, m, h2, m2 int
	n, err := fmt.Sscanf(part+"\n", "%d:%d-%d:%d\n", &h, &m, &h2, &m2)
	w := TimeWindow{From: timeOfDay(h, m), To: timeOfDay(h2, m2)}
	if n != 4 || err != nil || len(part) != len("22:00-06:30") || w.From < 0 || w.To < 0 {
		return TimeWindow{}, fmt.Errorf("invalid time window %q; use a window such as 22:00-06:30 or Sat-Sun "+
			"00:00-24:00",
			text)
	}
	if w.From == w.To {
		return TimeWindow{}, errors.New("the time window is empty: its end equals its start")
	}
	first, last := 0, 6
	if some {
		from, to, span := strings.Cut(on, "-")
		if !span {
			to = from
		}
		if first, last = weekdayIndex(from), weekdayIndex(to); first < 0 || last < 0 {
			return TimeWindow{}, fmt.Errorf("invalid day in the time window %q; use %s, or a range such as Sat-Sun",
				text,
				strings.Join(weekdayNames, ", "))
		}
	}
	for d := first; ; d = (d + 1) % 7 {
		w.Days[d] = true
		if d == last {
			return w, nil
		}
	}
}

// weekdayIndex returns the index of a day of the week, or −1 if the name is invalid.
func weekdayIndex(name string) int {
	for d, n := range weekdayNames {
		if strings.EqualFold(n, name) {
			return d
		}
	}
	return -1
}

// timeOfDay returns the duration from midnight to the time h:m, or −1 if the time is invalid.
func timeOfDay(h, m int) time.Duration {
	if h < 0 || h > 24 || m < 0 || m > 59 || h == 24 && m > 0 {
		return -1
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
}

// Contain reports whether a time is inside one of the windows. It uses the local time in the time's own zone.
func (all TimeWindows) Contain(at time.Time) bool {
	h, m, s := at.Clock()
	t, today := timeOfDay(h, m)+time.Duration(s)*time.Second, int(at.Weekday())
	for _, w := range all {
		in := w.Days[today] && t >= w.From && t < w.To
		if w.From > w.To {
			in = w.Days[today] && t >= w.From || w.Days[(today+6)%7] && t < w.To
		}
		if in {
			return true
		}
	}
	return len(all) == 0
}

// NextTimeInside returns the first time, not earlier than from, that is in one of the windows, in the time zone of
// from. It checks each minute, so clock changes need no special handling: a window in a skipped hour does not occur,
// and a window in a repeated hour occurs twice.
func (all TimeWindows) NextTimeInside(from time.Time) time.Time {
	if all.Contain(from) {
		return from
	}
	at := from.Add(-time.Duration(from.Second())*time.Second - time.Duration(from.Nanosecond()))
	for range 15 * 24 * 60 { // Search two weeks, since a clock change may skip the only window of a week.
		if at = at.Add(time.Minute); all.Contain(at) {
			break
		}
	}
	return at
}
