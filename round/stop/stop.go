package stop

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Reason tells why a run is over. It is a metric's label.
type Reason string

// The reasons.
const (
	Rounds   Reason = "rounds"   // it has made all its aggregations
	Risk     Reason = "risk"     // the target is reached
	R2       Reason = "r2"       // the same
	Accuracy Reason = "accuracy" // the same
	Patience Reason = "patience" // the risk has not improved for long
	Time     Reason = "time"     // its time is used up
	Bytes    Reason = "bytes"    // its bytes are
	Asked    Reason = "asked"    // a person has stopped it
)

// Reasons returns all reasons, for closed label sets.
func Reasons() []Reason { return []Reason{Rounds, Risk, R2, Accuracy, Patience, Time, Bytes, Asked} }

// Window is of how many aggregations the risk is the mean where there are no held-out data: each round has other
// participants, and so another risk.
const Window = 5

// Figures are what was measured of a new model; nil where it was not.
type Figures struct {
	Risk, R2, Accuracy *float64 // on held-out data
	// Told is the median of the risks that the participants have told, of the model before. A device that lies moves a
	// mean as far as it likes.
	Told *float64
}

// State is how far a run has come. It is in the journal. Slices are replaced and never changed.
type State struct {
	Since        time.Time `json:",omitzero"`  // the time counts from it
	Bytes        uint64    `json:",omitempty"` // carried since then
	R2, Accuracy float64   `json:",omitzero"`  // of the newest model; 0 = not known

	HeldOut bool              `json:",omitempty"` // the risks are those on held-out data
	Told    []float64         `json:",omitempty"` // else the last medians, the newest last
	Judged  int               `json:",omitempty"` // risks so far
	Risk    float64           `json:",omitzero"`  // the last one
	Best    float64           `json:",omitzero"`  // the lowest that counted as an improvement
	BestAt  wire.ModelVersion `json:",omitempty"` // the model whose aggregation had it
	Without int               `json:",omitempty"` // risks since then
	// Rescaled says that the risks to come are in other columns, and not to be compared with those before.
	Rescaled bool `json:",omitempty"`
}

// Resume takes up the state in a process with this rule. The first rule of a
// run counts from now, and a changed one with what was counted before.
func (s *State) Resume(c *Config, now time.Time) {
	if !c.On() {
		*s = State{}
	} else if s.Since.IsZero() {
		s.Since = now.UTC().Truncate(time.Millisecond)
	}
}

// Note takes the figures of a new model. Without held-out data the risk is the mean of the last [Window] medians of
// what participants tell, and is known from the [Window]-th aggregation on.
func (s *State) Note(c *Config, version wire.ModelVersion, f Figures) {
	s.R2, s.Accuracy = value(f.R2), value(f.Accuracy)
	if held := f.Risk != nil; s.Rescaled || held != s.HeldOut {
		s.Forget()
		s.Rescaled, s.HeldOut = false, held
	}
	switch {
	case s.HeldOut:
		s.judge(c, version, *f.Risk)
	case f.Told != nil:
		s.Told = append(slices.Clone(s.Told[max(0, len(s.Told)-(Window-1)):]), *f.Told)
		if len(s.Told) == Window {
			s.judge(c, version, mean(s.Told))
		}
	}
}

// judge compares a risk with the best one.
func (s *State) judge(c *Config, version wire.ModelVersion, risk float64) {
	s.Risk = risk
	s.Without++
	if s.Judged == 0 || risk < s.Best-c.Improvement*math.Abs(s.Best) {
		s.Best, s.BestAt, s.Without = risk, version, 0
	}
	s.Judged++
}

// Forget drops the risks so far, which are not to be compared with those to come.
func (s *State) Forget() {
	s.Told, s.Judged, s.Risk, s.Best, s.BestAt, s.Without = nil, 0, 0, 0, 0, 0
}

// Verdict returns why the run is over; empty if it is not.
func (s *State) Verdict(c *Config, now time.Time) Reason {
	switch end := s.End(c); {
	case c.Risk > 0 && s.Judged > 0 && s.Risk <= c.Risk:
		return Risk
	case c.R2 > 0 && s.R2 >= c.R2:
		return R2
	case c.Accuracy > 0 && s.Accuracy >= c.Accuracy:
		return Accuracy
	case c.Patience > 0 && s.Without >= c.Patience:
		return Patience
	case c.Bytes > 0 && s.Bytes >= uint64(c.Bytes):
		return Bytes
	case !end.IsZero() && !now.Before(end):
		return Time
	}
	return ""
}

// End is when the run's time is used up; zero without a limit.
func (s *State) End(c *Config) time.Time {
	if c.Time <= 0 {
		return time.Time{}
	}
	return s.Since.Add(c.Time)
}

// value is 0 for what is not known, which no target is.
func value(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x / float64(len(all)) // a device may tell the largest number
	}
	return sum
}
