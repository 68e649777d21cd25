package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestScheduleAt(t *testing.T) {
	for _, test := range []struct {
		s    StepSizeSchedule
		t    uint64
		want float64
	}{
		{StepSizeSchedule{ConstantStepSize: 0.1}, 1, 0.1},
		{StepSizeSchedule{ConstantStepSize: 0.1}, 1e9, 0.1},
		// The decay offset is γ = 8·4 − 1.
		{NewStepSizeSchedule(spec.StepSize{IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 2}, 10), 1,
			2 / (0.5 * (31 + 1))},
		// The decay offset is γ = H, the number of local steps between two server rounds.
		{NewStepSizeSchedule(spec.StepSize{IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 2}, 100), 1,
			2 / (0.5 * (100 + 1))},
		{NewStepSizeSchedule(spec.StepSize{IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 2}, 10), 5000,
			2 / (0.5 * (31 + 5000))},
	} {
		if got := test.s.StepSizeAt(test.t); math.Abs(got-test.want) > 1e-15 {
			t.Errorf("%+v.At(%d) = %v, want %v", test.s, test.t, got, test.want)
		}
	}
}

func TestScheduleValidate(t *testing.T) {
	for _, test := range []struct {
		s    StepSizeSchedule
		want string
	}{
		{StepSizeSchedule{ConstantStepSize: 0.1}, ""},
		{NewStepSizeSchedule(spec.StepSize{IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 2}, 1), ""},
		{StepSizeSchedule{ConstantStepSize: -1}, "schedule: step size is -1, but must be positive and finite"},
		{StepSizeSchedule{ConstantStepSize: math.NaN()}, "schedule: step size is NaN, but must be positive and finite"},
		{StepSizeSchedule{ConstantStepSize: math.Inf(1)},
			"schedule: step size is +Inf, but must be positive and finite"},
		{StepSizeSchedule{ConstantStepSize: 0.1, StrongConvexity: 0.5, DecayOffset: 1},
			"schedule: step size is 0.1 but strong convexity or gamma is also set: " +
				"set either the constant step size or the other two"},
		{StepSizeSchedule{StrongConvexity: 1}, "schedule: gamma is 0, but must be positive and finite"},
		{StepSizeSchedule{StrongConvexity: math.NaN(), DecayOffset: 1},
			"schedule: strong convexity is NaN, but must be positive and finite"},
	} {
		got := ""
		if err := test.s.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v:\n got %q\nwant %q", test.s, got, test.want)
		}
	}
}
