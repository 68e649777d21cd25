package grid

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data/units"
	"github.com/fedmesh/fedmesh/spec"
)

// FillPolicy selects the replacement for a missing value at a grid point. Targets are never replaced.
type FillPolicy string

// Fill policies.
const (
	FillSkip   FillPolicy = "skip"   // drop rows that need the missing value
	FillRefuse FillPolicy = "refuse" // report the missing value as an error
	FillLast   FillPolicy = "last"   // use the previous value, up to a maximum age
	FillMean   FillPolicy = "mean"   // use the mean of all previous values, or the most frequent class
)

// FillPolicies returns all values of FillPolicy.
func FillPolicies() []FillPolicy { return []FillPolicy{FillSkip, FillRefuse, FillLast, FillMean} }

// absentValue marks a grid point without a value.
var absentValue = math.NaN()

func isPresent(v float64) bool { return v == v }

// inputState is the state of one input of a RowBuilder. It stores the values of the most recent grid points in a ring
// buffer, where point k has index k modulo the buffer length.
type inputState struct {
	spec.InputSeries
	missingValues      MissingValues
	device             DeviceInput
	readingUnit        string // unit of the last reading, for which conversion and unitErr are valid
	conversion         units.Conversion
	unitErr            error     // reason why values in readingUnit cannot be converted to the unit of the input
	classNumbers       []float64 // classes converted to numbers by numberFromText
	readingCounts      InputReadingCounts
	isNeededByRows     bool // whether a column or the target uses the input
	pointValues        []float64
	plausibility       plausibilityCheck // plausibility check since the start or the last silence
	openPointAggregate pointAggregate    // aggregate of the open point
	hasReading         bool              // whether a reading was used since the start of the stream or the last silence
	isOffline          bool              // whether the device is offline since the last used reading
	lastPointValue     float64           // value of the point lastValuedPoint
	lastValuedPoint    int64
	sumOfPointValues   float64 // sum over all points with a value
	valuedPointCount   float64
	pointCountByClass  []int // number of points by class index
	lastGapPoint       int64 // last point whose row was dropped for lack of a value; −1 means none
}

// newInputState returns the state of an input before its first reading.
func newInputState(in spec.InputSeries, missingValues MissingValues, device DeviceInput) inputState {
	n := inputState{InputSeries: in, missingValues: missingValues, device: device,
		readingCounts: InputReadingCounts{Input: in.Name}, pointCountByClass: make([]int, len(in.Classes)),
		lastGapPoint: -1}
	n.conversion, n.unitErr = n.conversionFrom("")
	for _, class := range in.Classes {
		n.classNumbers = append(n.classNumbers, numberFromText(class))
	}
	return n
}

// InputReadingCounts contains the numbers of used and rejected readings of an input.
type InputReadingCounts struct {
	Input      string
	Used       uint64
	NewestTime int64 // time of the newest reading that is used or queued; 0 means none
	// NewestValue is the value at NewestTime, in the unit of the recipe. It is NaN if the device was then offline.
	NewestValue float64
	// Unused contains the number of rejected readings by reason. For ReasonGap and ReasonNoLabel it is the number of
	// rows that were dropped because they lack the input.
	Unused map[UnusedReason]uint64
	// LastRejected is the last rejected reading; zero if no reading was rejected.
	LastRejected         RejectedReading
	LastRejectedByReason map[UnusedReason]RejectedReading // last rejected reading by reason
	// LastGapTime is the time of the last row that was dropped because this input had no value; 0 means none.
	LastGapTime      int64
	RecentWrongShare RecentWrongShare
	UnusedRun        UnusedRun
}

// RejectedReading describes a rejected reading.
type RejectedReading struct {
	Why   UnusedReason
	Line  int64 // line number; 0 if it was not read from a file
	Time  int64 // time of the reading in Unix nanoseconds
	Text  string
	Value float64 // numeric value, if the reading has no text
	Unit  string
}

func (c *InputReadingCounts) countUsed() {
	c.Used++
	c.RecentWrongShare.CountValue(false)
	c.UnusedRun.CountValue(true)
}

func (c *InputReadingCounts) countUnused(why UnusedReason) {
	if c.Unused == nil {
		c.Unused = map[UnusedReason]uint64{}
	}
	c.Unused[why]++
}

// countRejected counts a rejected reading and stores it as the last rejected reading.
func (c *InputReadingCounts) countRejected(why UnusedReason, r Reading) {
	c.countUnused(why)
	c.UnusedRun.CountValue(false)
	if why.MeansWrongValue() {
		c.RecentWrongShare.CountValue(true)
	}
	if c.LastRejectedByReason == nil {
		c.LastRejectedByReason = map[UnusedReason]RejectedReading{}
	}
	c.LastRejected = RejectedReading{why, r.Line, r.Time, r.Text, r.Value, r.Unit}
	c.LastRejectedByReason[why] = c.LastRejected
}

// acceptedValue returns the value of a reading, or the reason for rejecting it.
func (in *inputState) acceptedValue(r Reading) (float64, UnusedReason) {
	if len(in.Classes) > 0 {
		return in.classIndexOf(r)
	}
	v := r.Value
	switch {
	case r.Text != "" && in.missingValues.HasText(r.Text), r.Text == "" && in.missingValues.HasNumber(v):
		return 0, ReasonMissing
	case !isPresent(v):
		return 0, ReasonNotANumber
	case v-v != 0:
		return 0, ReasonNotFinite
	case IsOutsideRange(v, in.device.ValidRange):
		return 0, ReasonOutOfRange
	}
	if r.Unit != in.readingUnit {
		in.readingUnit = r.Unit
		in.conversion, in.unitErr = in.conversionFrom(r.Unit)
	}
	if in.unitErr != nil {
		return 0, ReasonWrongUnit
	}
	v = in.conversion.Apply(v)
	if IsOutsideRange(v, in.ValidRange) || in.Transform == spec.TransformLog1p && v <= -1 {
		return 0, ReasonOutOfRange
	}
	return v, ""
}

// conversionFrom returns the conversion from readingUnit to the unit of the input. A unit in the device's configuration
// replaces readingUnit. Values without a unit are not converted.
func (in *inputState) conversionFrom(readingUnit string) (units.Conversion, error) {
	from := cmp.Or(in.device.Unit, readingUnit, in.Unit)
	if in.Unit == "" {
		from = ""
	}
	return units.Between(from, in.Unit)
}

// classIndexOf returns the index of the class that a reading names, or a reason for rejecting it. If no class has the
// same text, numbers are compared by value, with true as 1 and false as 0: 1.0 and TRUE match the class 1, and TRUE and
// 1 match the class true. A class takes precedence over a missing value with the same text, such as NA.
func (in *inputState) classIndexOf(r Reading) (float64, UnusedReason) {
	i := slices.Index(in.Classes, r.Text)
	if v := r.numericValue(); i < 0 && isPresent(v) {
		i = slices.Index(in.classNumbers, v)
	}
	switch {
	case i >= 0:
		return float64(i), ""
	case r.Text != "" && in.missingValues.HasText(r.Text), r.Text == "" && in.missingValues.HasNumber(r.Value):
		return 0, ReasonMissing
	}
	return 0, ReasonUnknownClass
}

// IsOutsideRange reports whether v is outside bounds, [minimum, maximum]. If bounds is nil, no value is outside.
func IsOutsideRange(v float64, bounds []float64) bool {
	return len(bounds) == 2 && (v < bounds[0] || v > bounds[1])
}

// pointAggregate aggregates the readings of a grid point.
type pointAggregate struct {
	readingCount        int
	sum, last, min, max float64
}

func (j *pointAggregate) addValue(v float64) {
	if j.readingCount == 0 {
		j.min, j.max = v, v
	}
	j.readingCount++
	j.sum, j.last, j.min, j.max = j.sum+v, v, min(j.min, v), max(j.max, v)
}

// pointValue returns the value of a grid point, or absentValue. For an input that counts readings, a point without
// readings has the value 0 if zero is true.
func (in *inputState) pointValue(j pointAggregate, zero bool) float64 {
	v := absentValue
	switch {
	case in.Resampling == spec.ResampleCount && (zero || j.readingCount > 0):
		v = float64(j.readingCount)
	case j.readingCount == 0:
	case in.Resampling == spec.ResampleLast, in.Resampling == spec.ResampleHeld:
		v = j.last
	case in.Resampling == spec.ResampleMax:
		v = j.max
	case in.Resampling == spec.ResampleMin:
		v = j.min
	case in.Resampling == spec.ResampleSum:
		v = j.sum
	default:
		v = j.sum / float64(j.readingCount)
	}
	if in.Transform == spec.TransformLog1p {
		v = math.Log1p(v)
	}
	if math.IsInf(v, 0) { // log1p of −1 is −Inf, and a sum may overflow
		return absentValue
	}
	return v
}

// heldValue returns the value of the last used reading as the value of point k, or absentValue if the reading is too
// old.
func (in *inputState) heldValue(k, step int64) float64 {
	last := in.plausibility.lastUsedReading
	if !in.hasReading || in.isOffline || k*step-last.time > int64(in.MaxAge) {
		return absentValue
	}
	var held pointAggregate
	held.addValue(last.value)
	return in.pointValue(held, false)
}

// closePoint completes grid point k. It stores the value of the point, or a replacement by rule m if the value is
// missing, and returns the measured value.
func (in *inputState) closePoint(k int64, m FillRule, step int64) (measured float64) {
	v := in.pointValue(in.openPointAggregate, in.hasReading)
	if in.Resampling == spec.ResampleHeld && in.openPointAggregate.readingCount == 0 {
		v = in.heldValue(k, step)
	}
	measured, in.openPointAggregate = v, pointAggregate{}
	switch {
	case isPresent(v):
		in.storePointValue(v, k)
	case m.Policy == FillLast && in.hasReading && !in.isOffline && isPresent(in.lastPointValue) &&
		time.Duration(k-in.lastValuedPoint) <= m.MaxLastValueAge/time.Duration(step):
		v = in.lastPointValue
	case m.Policy == FillMean && len(in.Classes) > 0 && in.valuedPointCount > 0:
		v = float64(slices.Index(in.pointCountByClass, slices.Max(in.pointCountByClass)))
	case m.Policy == FillMean && in.valuedPointCount > 0:
		v = in.sumOfPointValues / in.valuedPointCount
	}
	if len(in.pointValues) > 0 {
		in.pointValues[k%int64(len(in.pointValues))] = v
	}
	return measured
}

func (in *inputState) storePointValue(v float64, k int64) {
	in.lastPointValue, in.lastValuedPoint = v, k
	in.sumOfPointValues += v
	in.valuedPointCount++
	if len(in.Classes) > 0 {
		in.pointCountByClass[int(v)]++
	}
}
