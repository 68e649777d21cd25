package learner

import (
	"math"
	"testing"
	"time"
)

func TestLocalSteps(t *testing.T) {
	s := StepCountPolicy{MinSteps: 2, MaxSteps: 50, TimeBudget: time.Second}
	for _, test := range []struct {
		perStep time.Duration
		steps   int
		reason  StepCountReason
	}{
		{0, 2, StepTimeUnmeasured},
		{-1, 2, StepTimeUnmeasured},
		{time.Nanosecond, 50, StepCountByMaximum},
		{19 * time.Millisecond, 50, StepCountByMaximum},
		{20 * time.Millisecond, 50, StepCountByBudget},
		{30 * time.Millisecond, 33, StepCountByBudget}, // The number of steps is rounded down.
		{500 * time.Millisecond, 2, StepCountByBudget},
		{501 * time.Millisecond, 2, StepCountByMinimum},
		{time.Hour, 2, StepCountByMinimum},
	} {
		if steps, reason := s.LocalStepCount(test.perStep); steps != test.steps || reason != test.reason {
			t.Errorf("LocalSteps(%v) = %d, %v; want %d, %v", test.perStep, steps, reason, test.steps, test.reason)
		}
	}
	long := StepCountPolicy{MinSteps: 1, MaxSteps: math.MaxInt32, TimeBudget: 365 * 24 * time.Hour}
	if steps, reason := long.LocalStepCount(1); steps != math.MaxInt32 || reason != StepCountByMaximum {
		t.Errorf("a year of nanoseconds: %d, %v", steps, reason)
	}
}

func TestSizingValidate(t *testing.T) {
	for _, test := range []struct {
		s    StepCountPolicy
		want string
	}{
		{StepCountPolicy{1, 1, 1}, ""},
		{StepCountPolicy{0, 1, 1}, "local steps: the minimum is 0, but must be at least 1"},
		{StepCountPolicy{3, 2, 1}, "local steps: the maximum of 2 is less than the minimum of 3"},
		{StepCountPolicy{1, 2, 0}, "local steps: the time budget is 0s, but must be positive"},
	} {
		got := ""
		if err := test.s.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %q, want %q", test.s, got, test.want)
		}
	}
}

func TestPace(t *testing.T) {
	var p StepTimeEstimator
	for _, step := range []struct {
		steps int
		took  time.Duration
		want  time.Duration
	}{
		{0, time.Second, 0}, // A measurement without steps or time is ignored.
		{5, 0, 0},
		{5, -time.Second, 0},
		{10, time.Second, 100 * time.Millisecond}, // The first measurement is used as the estimate.
		{10, 2 * time.Second, 125 * time.Millisecond},
		{0, time.Hour, 125 * time.Millisecond},
		{4, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		p.AddMeasurement(step.steps, step.took)
		if got := p.EstimatedTimePerStep(); got != step.want {
			t.Errorf("after %d steps in %v: %v, want %v", step.steps, step.took, got, step.want)
		}
	}
	var fast StepTimeEstimator
	fast.AddMeasurement(1000, 10)
	if got := fast.EstimatedTimePerStep(); got != 1 {
		t.Errorf("10 ps a step: %v, want 1ns, since 0 is unmeasured", got)
	}
}

func TestEase(t *testing.T) {
	s := StepCountPolicy{MinSteps: 4, MaxSteps: 50, TimeBudget: time.Second}
	for _, tt := range []struct {
		steps  int
		share  float64
		want   int
		reason StepCountReason
	}{{40, 1, 40, StepCountByBudget}, {40, 0.5, 20, StepCountReduced}, {41, 0.5, 20, StepCountReduced}, {40, 0.01, 4,
		StepCountReduced}, {40, 0, 4, StepCountReduced},
		{4, 0.5, 4, StepCountByBudget}} {
		if n, why := s.ReduceStepCount(tt.steps, StepCountByBudget, tt.share); n != tt.want || why != tt.reason {
			t.Errorf("%v of %d steps: %d by %v, want %d by %v", tt.share, tt.steps, n, why, tt.want, tt.reason)
		}
	}
}
