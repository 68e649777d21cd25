package grid

// Reading is a value of an input at a time.
type Reading struct {
	Input string
	Time  int64 // nanoseconds since 1970, UTC
	// Text, if it is not empty, is what was said in words: an input with classes takes it. Value is then the number
	// that it stands for, as "21.5" and "true" do; NaN if it stands for none.
	Text  string
	Value float64
	Line  int // of the file that it was read from; 0 = of none
}

// Reason is why a reading, or a value of a row, is not used. It is also the label of a metric.
type Reason string

// The reasons.
const (
	Missing      Reason = "missing"       // a line or a payload has no such value
	NotANumber   Reason = "not_a_number"  // a text where a number is needed
	NotFinite    Reason = "not_finite"    // NaN or infinite, or too large for a float32
	OutOfRange   Reason = "out_of_range"  // of the input
	UnknownClass Reason = "unknown_class" // none of the input's
	Late         Reason = "late"          // older than the newest reading by more than the lateness
	Twice        Reason = "twice"         // the same input at the same time has come before
	Stuck        Reason = "stuck"         // the input has had the same value for too long
	Jump         Reason = "jump"          // too far from the value before
	BadTime      Reason = "bad_time"      // not a time, or one before 1970 or after 2261
	Future       Reason = "future"        // later than the device's clock
	Malformed    Reason = "malformed"     // a line or a payload that cannot be read
	Dropped      Reason = "dropped"       // there was no room for it: too much came, or the disk took nothing
	Gap          Reason = "gap"           // of a row: it needs a value of the input, and there is none
	NoLabel      Reason = "no_label"      // of a row: its label has not come within the wait
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Missing, NotANumber, NotFinite, OutOfRange, UnknownClass, Late, Twice, Stuck, Jump, BadTime, Future,
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
