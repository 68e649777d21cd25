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
	// Number is the position of the line or the entry in its source. It is ascending, and remains the same when the
	// source is read again.
	Number uint64
}

// number returns the value of a reading, or its text as a number. It returns NaN if the text is not a number.
func (r *Reading) number() float64 {
	if r.Text == "" {
		return r.Value
	}
	return numberOf(r.Text)
}

// numberOf returns the number that a text stands for. true and false, in upper or lower case, are 1 and 0. It returns
// NaN for other texts that are not numbers.
func numberOf(text string) float64 {
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

// Reason is why a reading, or a value of a row, is not used. It is also the label of a metric.
type Reason string

// The reasons.
const (
	Missing      Reason = "missing"       // absent, or in MissingValues
	NotANumber   Reason = "not_a_number"  // a text where a number is needed
	NotFinite    Reason = "not_finite"    // infinite, or too large for a float32
	OutOfRange   Reason = "out_of_range"  // of the input
	UnknownClass Reason = "unknown_class" // none of the input's
	Late         Reason = "late"          // older than the newest reading by more than the lateness
	Duplicate    Reason = "twice"         // a duplicate: same input, source and time
	Stuck        Reason = "stuck"         // the input has had the same value for too long
	Jump         Reason = "jump"          // too far from the value before
	BadTime      Reason = "bad_time"      // not a time, or one before 1970 or after 2261
	Future       Reason = "future"        // later than the device's clock, or than the readings that follow
	Malformed    Reason = "malformed"     // in a line or a payload that cannot be parsed
	Dropped      Reason = "dropped"       // there was no room for it: too much came, or the disk took nothing
	Gap          Reason = "gap"           // of a row: it needs a value of the input, and there is none
	NoLabel      Reason = "no_label"      // of a row: its label has not come within the wait
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Missing, NotANumber, NotFinite, OutOfRange, UnknownClass, Late, Duplicate, Stuck, Jump, BadTime,
		Future,
		Malformed, Dropped, Gap, NoLabel}
}

// Wrong reports whether the reason says that a value is none. The others are of those that are missing, late, or too
// many.
func (why Reason) Wrong() bool {
	switch why {
	case NotANumber, NotFinite, OutOfRange, UnknownClass, Stuck, Jump, BadTime, Future, Malformed:
		return true
	}
	return false
}
