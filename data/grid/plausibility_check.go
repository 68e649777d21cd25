package grid

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// minAgreeingReadings is the number of consecutive readings near a new level after which the level is accepted.
const minAgreeingReadings = 3

// plausibilityCheck detects stuck values and jumps of an input. Readings must be checked in order of time. The zero
// value is ready for use.
type plausibilityCheck struct {
	firstEqualReading    timedValue // first of the consecutive readings with the current value
	lastUsedReading      timedValue // last accepted reading
	outlierReading       timedValue // last reading, if it was too far from lastUsedReading
	agreeingReadings     int        // number of consecutive readings near outlierReading; 0 means none
	hasFirstEqualReading bool       // true once firstEqualReading is set
	hasLastUsedReading   bool       // true once lastUsedReading is set
}

type timedValue struct {
	time  int64
	value float64
}

// rejectReason returns the reason for rejecting a reading, or "" if it is accepted.
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

// isFarFrom reports whether m differs from an earlier value by more than jump per time step. Intervals shorter than a
// step count as one step.
func (m timedValue) isFarFrom(from timedValue, jump float64, step int64) bool {
	return math.Abs(m.value-from.value) > jump*max(1, float64(m.time-from.time)/float64(step))
}
