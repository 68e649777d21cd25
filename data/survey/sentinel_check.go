package survey

import (
	"fmt"

	"github.com/fedmesh/fedmesh/data"
)

// ReasonSentinel means that a number, such as -127 or 65535, probably represents a missing value. The values are still
// used.
const ReasonSentinel data.UnusedReason = "sentinel"

const (
	// minSentinelCount is the minimum number of times that a sentinel occurs.
	minSentinelCount = 3
	// sentinelDistance is the minimum distance of a sentinel from the other values, relative to their range.
	sentinelDistance = 2
)

// extremeValue is the lowest or the highest of a stream of numbers.
type extremeValue struct {
	sign  float64 // 1 for the highest value, -1 for the lowest value
	value float64
	count uint64
	// next is the value nearest to the extreme value. It is only valid if hasNext is true.
	next    float64
	hasNext bool
}

// addValue adds a number.
func (e *extremeValue) addValue(v float64) {
	switch {
	case e.count == 0:
		e.value, e.count = v, 1
	case v == e.value:
		e.count++
	case v*e.sign > e.value*e.sign:
		e.next, e.hasNext = e.value, true
		e.value, e.count = v, 1
	case !e.hasNext || v*e.sign > e.next*e.sign:
		e.next, e.hasNext = v, true
	}
}

// AddSentinelFault adds a fault if the lowest or the highest number of a column occurs repeatedly and is far outside
// the other numbers. Zero is never reported, because it is a common value of a device that is off.
func (s *SourceSurvey) AddSentinelFault(c *ColumnSurvey) {
	m := &c.NumberStats
	if len(c.ClassCounts) > 0 || c.HasMostlyTexts() || !m.lowest.hasNext {
		return
	}
	first, last := m.lowest.next, m.highest.next
	for _, e := range []extremeValue{m.lowest, m.highest} {
		distance := (e.value - e.next) * e.sign
		if e.value == 0 || e.count < minSentinelCount || 2*e.count > m.Count || !(first < last) ||
			!(distance > sentinelDistance*(last-first)) {
			continue
		}
		f := s.AddFault(c.Name, ReasonSentinel, DataFault{Problem: fmt.Sprintf(
			"%v is far outside the other values, which are mostly from %v to %v", e.value, first, last)})
		f.Count = int(e.count)
		f.Remedy = fmt.Sprintf("if it means a missing value, set data.missing_values: [%v]", e.value)
	}
}
