package learner

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/spec"
)

// StepSizeSchedule computes the step size of a local step t, before it is multiplied by the factor of an agent. The
// step size is either constant, or decays (FedDec paper, Theorem 1):
//
//	η_t = 2/(μ_sc(γ+t))
//
// For the constant schedule only ConstantStepSize is set.
type StepSizeSchedule struct {
	ConstantStepSize float64 // constant step size μ; 0 for a decaying step size
	StrongConvexity  float64 // strong convexity constant μ_sc of the risk
	DecayOffset      float64 // decay offset γ in the formula of the step size
}

// NewStepSizeSchedule returns the schedule for a step size configuration. The parameter serverEvery is the number H of
// local steps between two server rounds. The decay offset is γ = max{8 L_s/μ_sc − 1, H}, where L_s is the smoothness
// and μ_sc is the strong convexity constant.
func NewStepSizeSchedule(s spec.StepSize, serverEvery int) StepSizeSchedule {
	switch {
	case !s.IsDiminishing:
		return StepSizeSchedule{ConstantStepSize: s.Constant}
	case s.DecayOffset > 0:
		return StepSizeSchedule{StrongConvexity: s.StrongConvexity, DecayOffset: s.DecayOffset}
	}
	return StepSizeSchedule{StrongConvexity: s.StrongConvexity,
		DecayOffset: max(8*s.Smoothness/s.StrongConvexity-1, float64(serverEvery))}
}

// Validate returns an error for every field that is missing, out of bounds, or belongs to the other kind of schedule.
func (s StepSizeSchedule) Validate() error {
	var errs []error
	positive := func(field string, v float64) {
		if !(v > 0) || !isFinite(v) {
			errs = append(errs, fmt.Errorf("schedule: %s is %v, but must be positive and finite", field, v))
		}
	}
	if s.StrongConvexity == 0 && s.DecayOffset == 0 {
		positive("step size", s.ConstantStepSize)
		return errors.Join(errs...)
	}
	if s.ConstantStepSize != 0 {
		errs = append(errs, fmt.Errorf("schedule: step size is %v but strong convexity or gamma is also set: set "+
			"either the constant step size or the other two", s.ConstantStepSize))
	}
	positive("strong convexity", s.StrongConvexity)
	positive("gamma", s.DecayOffset)
	return errors.Join(errs...)
}

// StepSizeAt returns the step size of local step t of a valid schedule. The number t counts local steps across rounds,
// starting with 1 (FedDec paper, Algorithm 1).
func (s StepSizeSchedule) StepSizeAt(t uint64) float64 {
	if s.ConstantStepSize > 0 {
		return s.ConstantStepSize
	}
	return 2 / (s.StrongConvexity * (s.DecayOffset + float64(t)))
}
