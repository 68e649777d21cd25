package learner

import (
	"errors"
	"fmt"
	"time"
)

// StepCountPolicy determines the number of local steps E_k of agent k from the speed of its device: as many steps as
// fit into the time budget, within bounds.
type StepCountPolicy struct {
	MinSteps, MaxSteps int
	TimeBudget         time.Duration // time per round that the device may spend on local steps
}

// StepCountReason is the reason for the chosen number of local steps.
type StepCountReason uint8

// Reasons for the chosen number of local steps.
const (
	StepCountByBudget  StepCountReason = iota // the number is the budget divided by the time per step
	StepCountByMinimum                        // MinSteps are taken, since the budget allows fewer
	StepCountByMaximum                        // MaxSteps are taken, since the budget allows more
	StepTimeUnmeasured                        // MinSteps are taken, since the device's speed is unknown
	StepCountReduced                          // the number was reduced to spare the device
)

// StepCountReasons returns all reasons, for metric labels.
func StepCountReasons() []StepCountReason {
	return []StepCountReason{StepCountByBudget, StepCountByMinimum, StepCountByMaximum, StepTimeUnmeasured,
		StepCountReduced}
}

// String returns the name of the reason in metrics and logs.
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
	return fmt.Sprintf("StepCountReason(%d)", uint8(r))
}

// Validate returns an error for every field that is out of bounds.
func (s StepCountPolicy) Validate() error {
	var errs []error
	if s.MinSteps < 1 {
		errs = append(errs, fmt.Errorf("local steps: the minimum is %d, but must be at least 1", s.MinSteps))
	}
	if s.MaxSteps < s.MinSteps {
		errs = append(errs, fmt.Errorf("local steps: the maximum of %d is less than the minimum of %d", s.MaxSteps,
			s.MinSteps))
	}
	if s.TimeBudget <= 0 {
		errs = append(errs, fmt.Errorf("local steps: the time budget is %v, but must be positive", s.TimeBudget))
	}
	return errors.Join(errs...)
}

// LocalStepCount returns the number of local steps E_k = clamp(⌊budget ÷ perStep⌋, MinSteps, MaxSteps) and the reason
// for this number. The parameter perStep is the time per step; 0 means that it has not been measured yet.
func (s StepCountPolicy) LocalStepCount(perStep time.Duration) (steps int, reason StepCountReason) {
	if perStep <= 0 {
		return s.MinSteps, StepTimeUnmeasured
	}
	switch n := int64(s.TimeBudget / perStep); {
	case n < int64(s.MinSteps):
		return s.MinSteps, StepCountByMinimum
	case n > int64(s.MaxSteps):
		return s.MaxSteps, StepCountByMaximum
	default:
		return int(n), StepCountByBudget
	}
}

// newestMeasurementShare is the weight of the newest run in the estimate. The estimate follows a change of speed within
// a few rounds, and a single unusual round changes it by at most a quarter of the difference.
const newestMeasurementShare = 0.25

// StepTimeEstimator estimates the time per local step by an exponential moving average. The zero value contains no
// measurement.
type StepTimeEstimator struct{ nanosecondsPerStep float64 }

// AddMeasurement adds the duration of a run of steps. It ignores a run without steps or without duration.
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

// EstimatedTimePerStep returns the estimate, which is at least 1 ns, or 0 if there is no measurement.
func (p *StepTimeEstimator) EstimatedTimePerStep() time.Duration {
	if p.nanosecondsPerStep == 0 {
		return 0
	}
	return max(1, time.Duration(p.nanosecondsPerStep))
}

// ReduceStepCount returns the given share, from 0 to 1, of the steps that LocalStepCount has returned, but at least
// MinSteps.
func (s StepCountPolicy) ReduceStepCount(steps int, reason StepCountReason, share float64) (int, StepCountReason) {
	if eased := max(s.MinSteps, int(float64(steps)*share)); eased < steps {
		return eased, StepCountReduced
	}
	return steps, reason
}
