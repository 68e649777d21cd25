package learner

import "fmt"

// Descent performs an agent's stochastic gradient descent. It combines a model, the source of random samples and noise,
// and the step sizes.
type Descent[T Float] struct {
	Model      *Model[T]
	Draws      StepDrawSource[T]
	Schedule   StepSizeSchedule // step sizes; must be valid: see StepSizeSchedule.Validate
	Correction StepCorrection[T]
	// NormalizesStepSize divides the step size of agent k by its number E_k of local steps (ch5, equation (5.26)).
	// Without this division, the iterates converge to the limit in ch5, problem 5.1.
	NormalizesStepSize bool
}

// DivergenceError means that a risk or a parameter is no longer finite.
type DivergenceError struct {
	Step    int    // local step at which the divergence was detected, counted from 1
	Problem string // description, such as "the risk is NaN" or "parameter 17 is +Inf"
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("training diverged at local step %d: %s; use a smaller step size or check the scale of the "+
		"data", e.Step,
		e.Problem)
}

// Run takes local steps in place on the parameters w, of length d (ch5, equation (5.9), with the step size of equation
// (5.26)):
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ(φ_{k,e−1}),  μ_k = μ·(K p_k)/E_k
//
// where ĝ is the stochastic gradient of [StepDraw] plus the [StepCorrection]. The parameter weight is K·p_k, which is 1
// for equal agents, or if the server applies the weights. The factor 1/E_k, with E_k = steps, applies only if
// NormalizesStepSize is set. The parameter offset is the number of local steps before this run, for a decaying
// schedule. Run calls stop before every step; a nil stop means that Run takes all steps. A step that the agent skips at
// random counts as taken.
//
// Run returns the number of steps taken, which is less than steps if stop returned true. It returns an error for
// invalid settings, or a [*DivergenceError]. Every step that changes w first checks that the risk is finite. Infinite
// parameters that do not make a risk infinite are detected at the end. After an error w is invalid.
func (d *Descent[T]) Run(w []T, steps int, weight float64, offset uint64, stop func() bool) (taken int, err error) {
	if err := d.validate(steps, weight); err != nil {
		return 0, err
	}
	m := d.Model
	m.checkVectorLength("w", w)
	if d.NormalizesStepSize {
		weight /= float64(steps)
	}
	for taken < steps && (stop == nil || !stop()) {
		mu := weight * d.Schedule.StepSizeAt(offset+uint64(taken)+1)
		draw := d.Draws.Next(m)
		if draw.GradientScale != 0 {
			if risk := m.takeStep(w, draw, mu, &d.Correction); !isFinite(risk) {
				return taken, &DivergenceError{Step: taken + 1, Problem: fmt.Sprintf("the risk (mean loss) is %v",
					risk)}
			}
		}
		taken++
	}
	if i := FirstNonFiniteIndex(w); i >= 0 {
		return taken, &DivergenceError{Step: taken, Problem: fmt.Sprintf("parameter %d is %v", i, w[i])}
	}
	return taken, nil
}

// GradientAt writes the stochastic gradient ĝ(w) of one random draw to grad, for gradient exchange (lecture, equations
// (13)–(14) and (33)–(34)). It writes zero if the agent skips the step at random. Both vectors have length d and must
// not overlap.
func (d *Descent[T]) GradientAt(grad, w []T) {
	m := d.Model
	draw := d.Draws.Next(m)
	if draw.GradientScale == 0 {
		clear(grad)
		return
	}
	m.Gradient(grad, w, draw.Batch)
	m.addNoiseAndCorrection(1, draw, &d.Correction, grad)
	for i, g := range grad {
		grad[i] = T(T(draw.GradientScale) * g)
	}
	d.Correction.clearFrozenGradient(grad)
}

func (d *Descent[T]) validate(steps int, weight float64) error {
	switch {
	case steps < 1:
		return fmt.Errorf("the number of local steps is %d, but must be at least 1", steps)
	case !(weight >= 0) || !isFinite(weight):
		return fmt.Errorf("agent weight is %v, but must be finite and not negative", weight)
	}
	return nil
}
