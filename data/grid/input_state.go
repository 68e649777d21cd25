package grid

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// FillPolicy is what stands for the value of a grid point that has none. A target is never made up.
type FillPolicy string

// The policies.
const (
	FillSkip   FillPolicy = "skip"   // nothing: rows that need it are not made
	FillRefuse FillPolicy = "refuse" // nothing, and the readings are of no use
	FillLast   FillPolicy = "last"   // the value before, which is at most so old
	FillMean   FillPolicy = "mean"   // the mean of all values before, or their most frequent class
)

// FillPolicies returns all policies.
func FillPolicies() []FillPolicy { return []FillPolicy{FillSkip, FillRefuse, FillLast, FillMean} }

// absentValue is the value of a grid point without one.
var absentValue = math.NaN()

func isPresent(v float64) bool { return v == v }

// inputState is what is kept of an input. The values of the last points are in a ring: that of point k at k mod its
// length.
type inputState struct {
	spec.InputSeries
	missingValues      MissingValues
	deviceValidRange   []float64 // valid range [minimum, maximum] from the device's configuration; nil = any value
	classNumbers       []float64 // the classes as numbers, see numberFromText
	readingCounts      InputReadingCounts
	isNeededByRows     bool // by a column or the target
	pointValues        []float64
	plausibility       plausibilityCheck // since the beginning, or a silence
	openPointAggregate pointAggregate    // of the open point
	hasReading         bool              // since the beginning, or a silence
	lastPointValue     float64           // value of the point lastValuedPoint
	lastValuedPoint    int64
	sumOfPointValues   float64 // of all points with a value
	valuedPointCount   float64
	pointCountByClass  []int // how many points had each class
	lastGapPoint       int64 // the last point whose row was not made for lack of a value; −1 = none
}

// newInputState returns the state of an input without readings.
func newInputState(in spec.InputSeries, missingValues MissingValues, deviceRange []float64) inputState {
	n := inputState{InputSeries: in, missingValues: missingValues, deviceValidRange: deviceRange,
		readingCounts: InputReadingCounts{Input: in.Name}, pointCountByClass: make([]int, len(in.Classes)),
		lastGapPoint: -1}
	for _, class := range in.Classes {
		n.classNumbers = append(n.classNumbers, numberFromText(class))
	}
	return n
}

// InputReadingCounts is how many readings of an input were used and why others were not.
type InputReadingCounts struct {
	Input      string
	Used       uint64
	NewestTime int64 // time of the newest that was used or waits; 0 = none
	// Unused has readings, and under ReasonGap and ReasonNoLabel the rows that were not made because they lack the
	// input.
	Unused map[UnusedReason]uint64
	// the last rejected reading; the zero value = no reading was rejected
	LastRejected         RejectedReading
	LastRejectedByReason map[UnusedReason]RejectedReading // the last rejected reading by reason
	// time of the last row that was not made for lack of this input; 0 = none
	LastGapTime      int64
	RecentWrongShare RecentWrongShare
}

// RejectedReading describes a rejected reading.
type RejectedReading struct {
	Why   UnusedReason
	Line  int64 // 0 = it was not read from a file
	Time  int64 // its time
	Text  string
	Value float64 // if it has no text
}

// countUsed counts a reading that is used.
func (c *InputReadingCounts) countUsed() {
	c.Used++
	c.RecentWrongShare.CountValue(false)
}

func (c *InputReadingCounts) countUnused(why UnusedReason) {
	if c.Unused == nil {
		c.Unused = map[UnusedReason]uint64{}
	}
	c.Unused[why]++
}

// countRejected counts a reading that is not used.
func (c *InputReadingCounts) countRejected(why UnusedReason, r Reading) {
	c.countUnused(why)
	if why.MeansWrongValue() {
		c.RecentWrongShare.CountValue(true)
	}
	if c.LastRejectedByReason == nil {
		c.LastRejectedByReason = map[UnusedReason]RejectedReading{}
	}
	c.LastRejected = RejectedReading{why, r.Line, r.Time, r.Text, r.Value}
	c.LastRejectedByReason[why] = c.LastRejected
}

// acceptedValue returns the number of a reading, or why there is none.
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
	case IsOutsideRange(v, in.ValidRange), IsOutsideRange(v, in.deviceValidRange),
		in.Transform == spec.TransformLog1p && v <= -1:
		return 0, ReasonOutOfRange
	}
	return v, ""
}

// classIndexOf returns the index of the class that a reading names, or the reason why it names none. If no class has
// the same text, numbers are compared by value, and true and false are 1 and 0: 1.0 and TRUE are the class 1, and TRUE
// and 1 are the class true. A class takes precedence over a missing value with the same text, such as NA.
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

// IsOutsideRange reports whether v is outside of bounds, [minimum, maximum]. Every value is inside if bounds is nil.
func IsOutsideRange(v float64, bounds []float64) bool {
	return len(bounds) == 2 && (v < bounds[0] || v > bounds[1])
}

// pointAggregate joins the readings of a point.
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

// pointValue returns the value of a point, or nothing; of a count without readings only if zero.
func (in *inputState) pointValue(j pointAggregate, zero bool) float64 {
	v := absentValue
	switch {
	case in.Resampling == spec.ResampleCount && (zero || j.readingCount > 0):
		v = float64(j.readingCount)
	case j.readingCount == 0:
	case in.Resampling == spec.ResampleLast:
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
	if math.IsInf(v, 0) { // a sum of readings may be −1, or too large
		return absentValue
	}
	return v
}

// closePoint ends point k: it keeps the point's value, filled in if there is none, and returns that which was measured.
func (in *inputState) closePoint(k int64, m FillRule, step int64) (measured float64) {
	v := in.pointValue(in.openPointAggregate, in.hasReading)
	measured, in.openPointAggregate = v, pointAggregate{}
	switch {
	case isPresent(v):
		in.storePointValue(v, k)
	case m.Policy == FillLast && in.hasReading && isPresent(in.lastPointValue) &&
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
