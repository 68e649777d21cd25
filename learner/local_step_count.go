package learner

import (
	"errors"
	"fmt"
	"time"
)

// StepCountPolicy chooses E_k, the number of local steps, from a device's speed: as many as the budget pays for, within
// bounds.
type StepCountPolicy struct {
	Min, Max int
	Budget   time.Duration // of computing in one round
}

// StepCountReason says what decided the number of local steps.
type StepCountReason uint8

// The reasons.
const (
	StepCountByBudget  StepCountReason = iota // the budget divided by the time per step
	StepCountByMinimum                        // the budget pays for fewer than Min
	StepCountByMaximum                        // the budget pays for more than Max
	StepTimeUnmeasured                        // no speed is known yet: Min
	StepCountReduced                          // the device is to be spared: a share of what it could take
)

// StepCountReasons returns all reasons, for closed label sets.
func StepCountReasons() []StepCountReason {
	return []StepCountReason{StepCountByBudget, StepCountByMinimum, StepCountByMaximum, StepTimeUnmeasured,
		StepCountReduced}
}

// String is the reason as metrics and logs name it.
func (r StepCountReason) String() string {
	switch r {
	case StepCountByBudget:
		return "budget"
	case StepCountByMinimum:
		return "minimum"
	case StepCountByMaximum:
		return "maximum"
	case StepTimeUnmeasured:
		return "unmeasured"
	case StepCountReduced:
		return "eased"
	}
	return fmt.Sprintf("SizingReason(%d)", uint8(r))
}

// Validate reports every field out of its bounds.
func (s StepCountPolicy) Validate() error {
	var errs []error
	if s.Min < 1 {
		errs = append(errs, fmt.Errorf("sizing: minimum of %d local steps; at least 1", s.Min))
	}
	if s.Max < s.Min {
		errs = append(errs, fmt.Errorf("sizing: maximum of %d local steps is less than the minimum of %d", s.Max,
			s.Min))
	}
	if s.Budget <= 0 {
		errs = append(errs, fmt.Errorf("sizing: budget of %v; it must be positive", s.Budget))
	}
	return errors.Join(errs...)
}

// LocalSteps is E_k = clamp(⌊budget ÷ perStep⌋, Min, Max) and what decided it. A perStep of 0 is one not measured yet.
func (s StepCountPolicy) LocalSteps(perStep time.Duration) (steps int, reason StepCountReason) {
	if perStep <= 0 {
		return s.Min, StepTimeUnmeasured
	}
	switch n := int64(s.Budget / perStep); { // 64 bits: a long budget of short steps exceeds a 32-bit int
	case n < int64(s.Min):
		return s.Min, StepCountByMinimum
	case n > int64(s.Max):
		return s.Max, StepCountByMaximum
	default:
		return int(n), StepCountByBudget
	}
}

// newestMeasurementShare is the share of the newest run in the estimate: a change of speed is followed in a few rounds,
// one odd round moves it by a quarter.
const newestMeasurementShare = 0.25

// StepTimeEstimator is an exponential moving estimate of the time per local step. Its zero value has measured nothing.
type StepTimeEstimator struct{ nanoseconds float64 }

// Observe takes in a run of steps that took that long. A run without steps or time says nothing and is ignored.
func (p *StepTimeEstimator) Observe(steps int, took time.Duration) {
	if steps <= 0 || took <= 0 {
		return
	}
	seen := float64(took) / float64(steps)
	if p.nanoseconds == 0 {
		p.nanoseconds = seen
		return
	}
	p.nanoseconds += newestMeasurementShare * (seen - p.nanoseconds)
}

// PerStep is the estimate, at least 1 ns once there is one; 0 = unmeasured.
func (p *StepTimeEstimator) PerStep() time.Duration {
	if p.nanoseconds == 0 {
		return 0
	}
	return max(1, time.Duration(p.nanoseconds))
}

// ReduceSteps takes a share of the steps that LocalSteps gave, 0 to 1, but no fewer than Min.
func (s StepCountPolicy) ReduceSteps(steps int, reason StepCountReason, share float64) (int, StepCountReason) {
	if eased := max(s.Min, int(float64(steps)*share)); eased < steps {
		return eased, StepCountReduced
	}
	return steps, reason
}
