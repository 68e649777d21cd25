package grid

import (
	"strconv"
	"strings"
)

// Reading is the value of an input at one time.
type Reading struct {
	Input string
	Time  int64 // time in nanoseconds since 1970, UTC
	// Source distinguishes several sensors of the same input, such as topics that match a wildcard. Two readings with
	// the same input, time and source are duplicates.
	Source uint64
	// Text is the value as text, if it is not empty. Inputs with classes use it. Value is then the number that the text
	// represents, as for "21.5" and "true", or NaN.
	Text  string
	Value float64
	Unit  string // unit of the value, if the payload contains it
	// Line is the line number of the reading in its file; 0 if the reading was not read from a file.
	Line int64
	// SequenceNumber is the position of the line or entry in its source. It increases from reading to reading, and does
	// not change when the source is read again.
	SequenceNumber uint64
}

// numericValue returns the value of a reading, or its text as a number. It returns NaN if the text is not a number.
func (r *Reading) numericValue() float64 {
	if r.Text == "" {
		return r.Value
	}
	return numberFromText(r.Text)
}

// numberFromText converts a text to a number. It converts true and false, case-insensitively, to 1 and 0, and returns
// NaN for other texts that are not numbers.
func numberFromText(text string) float64 {
	switch {
	case strings.EqualFold(text, "true"):
		return 1
	case strings.EqualFold(text, "false"):
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return absentValue
	}
	return v
}

// UnusedReason is the reason for rejecting a reading or a value of a row. It is also the label value of a metric.
type UnusedReason string

// Reasons for rejecting a reading or dropping a row.
const (
	ReasonMissing      UnusedReason = "missing"       // the value is empty or in MissingValues
	ReasonNotANumber   UnusedReason = "not_a_number"  // the value is not a number
	ReasonNotFinite    UnusedReason = "not_finite"    // infinite or too large for a float32
	ReasonOutOfRange   UnusedReason = "out_of_range"  // outside the valid range of the input
	ReasonWrongUnit    UnusedReason = "wrong_unit"    // in a unit that cannot be converted to the unit of the input
	ReasonUnknownClass UnusedReason = "unknown_class" // the value is not a class of the input
	ReasonLate         UnusedReason = "late"          // older than the newest reading by more than the lateness
	ReasonDuplicate    UnusedReason = "twice"         // duplicate with the same input, source and time
	ReasonStuck        UnusedReason = "stuck"         // the input has had the same value for too long
	ReasonJump         UnusedReason = "jump"          // the value is too far from the previous value
	ReasonBadTime      UnusedReason = "bad_time"      // not a time, or before 1970 or after 2261
	ReasonFutureTime   UnusedReason = "future"        // later than the device's clock or the following readings
	ReasonMalformed    UnusedReason = "malformed"     // in a line or payload that cannot be parsed
	// ReasonNoRoom means that too many readings arrived, or that they could not be written to disk.
	ReasonNoRoom  UnusedReason = "dropped"
	ReasonGap     UnusedReason = "gap"      // the row requires a value of the input that is missing
	ReasonNoLabel UnusedReason = "no_label" // the label of the row did not arrive in time
)

// UnusedReasons returns all values of UnusedReason.
func UnusedReasons() []UnusedReason {
	return []UnusedReason{ReasonMissing, ReasonNotANumber, ReasonNotFinite, ReasonOutOfRange, ReasonWrongUnit,
		ReasonUnknownClass, ReasonLate, ReasonDuplicate, ReasonStuck, ReasonJump, ReasonBadTime,
		ReasonFutureTime,
		ReasonMalformed, ReasonNoRoom, ReasonGap, ReasonNoLabel}
}

// MeansWrongValue reports whether the reason means that the value itself is wrong. It returns false for missing, late
// and surplus values.
func (why UnusedReason) MeansWrongValue() bool {
	switch why {
	case ReasonNotANumber, ReasonNotFinite, ReasonOutOfRange, ReasonWrongUnit, ReasonUnknownClass, ReasonStuck,
		ReasonJump, ReasonBadTime, ReasonFutureTime, ReasonMalformed:
		return true
	}
	return false
}
