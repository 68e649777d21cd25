package learner

import (
	"errors"
	"fmt"
	"time"
)

// StepCountPolicy chooses E_k, the number of local steps, from a device's speed: as many as the budget pays for, within
// bounds.
type StepCountPolicy struct {
	MinSteps, MaxSteps int
	TimeBudget         time.Duration // of computing in one round
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
	if s.MinSteps < 1 {
		errs = append(errs, fmt.Errorf("sizing: minimum of %d local steps; at least 1", s.MinSteps))
	}
	if s.MaxSteps < s.MinSteps {
		errs = append(errs, fmt.Errorf("sizing: maximum of %d local steps is less than the minimum of %d", s.MaxSteps,
			s.MinSteps))
	}
	if s.TimeBudget <= 0 {
		errs = append(errs, fmt.Errorf("sizing: budget of %v; it must be positive", s.TimeBudget))
	}
	return errors.Join(errs...)
}

// LocalStepCount is E_k = clamp(⌊budget ÷ perStep⌋, Min, Max) and what decided it. A perStep of 0 is one not measured
// yet.
func (s StepCountPolicy) LocalStepCount(perStep time.Duration) (steps int, reason StepCountReason) {
	if perStep <= 0 {
		return s.MinSteps, StepTimeUnmeasured
	}
	switch n := int64(s.TimeBudget / perStep); { // 64 bits: a long budget of short steps exceeds a 32-bit int
	case n < int64(s.MinSteps):
		return s.MinSteps, StepCountByMinimum
	case n > int64(s.MaxSteps):
		return s.MaxSteps, StepCountByMaximum
	default:
		return int(n), StepCountByBudget
	}
}

// newestMeasurementShare is the share of the newest run in the estimate: a change of speed is followed in a few rounds,
// one odd round moves it by a quarter.
const newestMeasurementShare = 0.25

// StepTimeEstimator is an exponential moving estimate of the time per local step. Its zero value has measured nothing.
type StepTimeEstimator struct{ nanosecondsPerStep float64 }

// AddMeasurement takes in a run of steps that took that long. A run without steps or time says nothing and is ignored.
func (p *StepTimeEstimator) AddMeasurement(steps int, took time.Duration) {
	if steps <= 0 || took <= 0 {
		return
	}
	seen := float64(took) / float64(steps)
	if p.nanosecondsPerStep == 0 {
		p.nanosecondsPerStep = seen
		return
	}
	p.nanosecondsPerStep += newestMeasurementShare * (seen - p.nanosecondsPerStep)
}

// EstimatedTimePerStep is the estimate, at least 1 ns once there is one; 0 = unmeasured.
func (p *StepTimeEstimator) EstimatedTimePerStep() time.Duration {
	if p.nanosecondsPerStep == 0 {
		return 0
	}
	return max(1, time.Duration(p.nanosecondsPerStep))
}

// ReduceStepCount takes a share of the steps that LocalStepCount gave, 0 to 1, but no fewer than Min.
func (s StepCountPolicy) ReduceStepCount(steps int, reason StepCountReason, share float64) (int, StepCountReason) {
	if eased := max(s.MinSteps, int(float64(steps)*share)); eased < steps {
		return eased, StepCountReduced
	}
	return steps, reason
}
