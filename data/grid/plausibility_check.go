package grid

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// minAgreeingReadings is how many readings of a new level, one after the other, are needed for it to be used.
const minAgreeingReadings = 3

// plausibilityCheck decide on readings of an input, which they get in order of time. The zero value has seen none.
type plausibilityCheck struct {
	firstEqualReading    timedValue // the first of the readings that are equal up to now
	lastUsedReading      timedValue // the last that was used
	outlierReading       timedValue // last reading, if it was too far from used
	agreeingReadings     int        // number of consecutive readings near outlier; 0 = outlier is not set
	hasFirstEqualReading bool       // same is set
	hasLastUsedReading   bool       // used is set
}

type timedValue struct {
	time  int64
	value float64
}

// rejectReason returns why a reading is not used; empty if it is.
func (d *plausibilityCheck) rejectReason(in *spec.InputSeries, now timedValue, step int64) UnusedReason {
	if !d.hasFirstEqualReading || d.firstEqualReading.value != now.value {
		d.firstEqualReading, d.hasFirstEqualReading = now, true
	}
	switch {
	case in.StuckAfter > 0 && now.time-d.firstEqualReading.time > int64(in.StuckAfter):
		return ReasonStuck
	case in.MaxJump > 0 && d.hasLastUsedReading && now.isFarFrom(d.lastUsedReading, in.MaxJump, step):
		if d.agreeingReadings > 0 && now.isFarFrom(d.outlierReading, in.MaxJump, step) {
			d.agreeingReadings = 0
		}
		d.outlierReading, d.agreeingReadings = now, d.agreeingReadings+1
		if d.agreeingReadings < minAgreeingReadings {
			return ReasonJump
		}
	}
	d.lastUsedReading, d.hasLastUsedReading, d.agreeingReadings = now, true, 0
	return ""
}

// isFarFrom reports whether a value is further from an earlier one than it may be: by more than so much in a step of
// time, or in less.
func (m timedValue) isFarFrom(from timedValue, jump float64, step int64) bool {
	return math.Abs(m.value-from.value) > jump*max(1, float64(m.time-from.time)/float64(step))
}
