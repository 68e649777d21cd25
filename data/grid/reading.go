package grid

import (
	"strconv"
	"strings"
)

// Reading is a value of an input at a time.
type Reading struct {
	Input string
	Time  int64 // nanoseconds since 1970, UTC
	// Source distinguishes several sensors of the same input, such as the topics that match a wildcard. Two readings
	// with the same input, time and source are duplicates.
	Source uint64
	// Text, if it is not empty, is what was said in words: an input with classes takes it. Value is then the number
	// that it stands for, as "21.5" and "true" do; NaN if it stands for none.
	Text  string
	Value float64
	// Line is the line from which the reading was read, in the numbering of its feed; 0 if it was not read from a file.
	Line int64
	// SequenceNumber is the position of the line or the entry in its source. It is ascending, and remains the same when
	// the source is read again.
	SequenceNumber uint64
}

// numericValue returns the value of a reading, or its text as a number. It returns NaN if the text is not a number.
func (r *Reading) numericValue() float64 {
	if r.Text == "" {
		return r.Value
	}
	return numberFromText(r.Text)
}

// numberFromText returns the number that a text stands for. true and false, in upper or lower case, are 1 and 0. It
// returns NaN for other texts that are not numbers.
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

// UnusedReason is why a reading, or a value of a row, is not used. It is also the label of a metric.
type UnusedReason string

// The reasons.
const (
	ReasonMissing      UnusedReason = "missing"       // absent, or in MissingValues
	ReasonNotANumber   UnusedReason = "not_a_number"  // a text where a number is needed
	ReasonNotFinite    UnusedReason = "not_finite"    // infinite, or too large for a float32
	ReasonOutOfRange   UnusedReason = "out_of_range"  // of the input
	ReasonUnknownClass UnusedReason = "unknown_class" // none of the input's
	ReasonLate         UnusedReason = "late"          // older than the newest reading by more than the lateness
	ReasonDuplicate    UnusedReason = "twice"         // a duplicate: same input, source and time
	ReasonStuck        UnusedReason = "stuck"         // the input has had the same value for too long
	ReasonJump         UnusedReason = "jump"          // too far from the value before
	ReasonBadTime      UnusedReason = "bad_time"      // not a time, or one before 1970 or after 2261
	ReasonFutureTime   UnusedReason = "future"        // later than the device's clock, or than the readings that follow
	ReasonMalformed    UnusedReason = "malformed"     // in a line or a payload that cannot be parsed
	// There was no room for it: too much came, or the disk took nothing.
	ReasonNoRoom  UnusedReason = "dropped"
	ReasonGap     UnusedReason = "gap"      // of a row: it needs a value of the input, and there is none
	ReasonNoLabel UnusedReason = "no_label" // of a row: its label has not come within the wait
)

// UnusedReasons returns all reasons.
func UnusedReasons() []UnusedReason {
	return []UnusedReason{ReasonMissing, ReasonNotANumber, ReasonNotFinite, ReasonOutOfRange, ReasonUnknownClass,
		ReasonLate, ReasonDuplicate, ReasonStuck, ReasonJump, ReasonBadTime,
		ReasonFutureTime,
		ReasonMalformed, ReasonNoRoom, ReasonGap, ReasonNoLabel}
}

// MeansWrongValue reports whether the reason says that a value is none. The others are of those that are missing, late,
// or too many.
func (why UnusedReason) MeansWrongValue() bool {
	switch why {
	case ReasonNotANumber, ReasonNotFinite, ReasonOutOfRange, ReasonUnknownClass, ReasonStuck, ReasonJump,
		ReasonBadTime, ReasonFutureTime, ReasonMalformed:
		return true
	}
	return false
}
