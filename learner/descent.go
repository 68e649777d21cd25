package learner

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Descent is an agent's stochastic gradient descent: a model, its data and how it steps.
type Descent[T Float] struct {
	Model     *Model[T]
	Data      *Samples[T]
	BatchSize int // B_k samples, drawn afresh for every step; 0 = the exact gradient, over all rows
	Schedule  Schedule
	Normalize bool // divide the step size by E_k (ch5 (5.26)); without it the limit is that of ch5 problem 5.1

	batch Batch[T]
}

// maxBatch bounds the memory that a received batch size can claim.
const maxBatch = 65536

// DivergenceError says that a risk or a parameter stopped being finite.
type DivergenceError struct {
	Step int    // local step of this run, from 1, at which it was seen
	What string // "the risk is NaN", "parameter 17 is +Inf"
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("diverged at local step %d: %s; use a smaller step size, or check the scale of the data", e.Step, e.What)
}

// Run takes steps local steps in place on w, of length d (ch5 (5.9) with the step size of ch5 (5.26)):
//
//	φ_{k,e} = φ_{k,e−1} − μ_k ĝ(φ_{k,e−1}),  μ_k = μ·(K p_k)/E_k
//
// weight is K·p_k (1 for equal agents, or where the server weights); the 1/E_k, with E_k = steps, is there if
// Normalize is set. offset is the number of local steps before this run, for a schedule that decays. rng may be nil if
// BatchSize is 0. stop is polled before every step; nil never stops.
//
// It returns the number of steps taken, less than steps if stop said so, and an error if the settings cannot work or a
// [*DivergenceError]. Every step checks its risk before it moves w; parameters that have become infinite without
// showing in a risk are found at the end of the run. After an error w is of no use.
func (d *Descent[T]) Run(w []T, steps int, weight float64, offset uint64, rng *rand.Rand, stop func() bool) (taken int, err error) {
	if err := d.validate(steps, weight); err != nil {
		return 0, err
	}
	d.Model.checkVector("w", w)
	if d.Normalize {
		weight /= float64(steps)
	}
	for taken < steps && (stop == nil || !stop()) {
		mu := weight * d.Schedule.At(offset+uint64(taken)+1)
		risk := d.Model.step(w, d.draw(rng), mu)
		if !finite(risk) {
			return taken, &DivergenceError{Step: taken + 1, What: fmt.Sprintf("the risk is %v", risk)}
		}
		taken++
	}
	for i, v := range w {
		if !finite(float64(v)) {
			return taken, &DivergenceError{Step: taken, What: fmt.Sprintf("parameter %d is %v", i, v)}
		}
	}
	return taken, nil
}

// GradientAt overwrites grad with the gradient at w over one draw of the data, for gradient exchange (lecture
// (13)–(14)), and returns the risk of that draw. Both vectors have length d; there must be data.
func (d *Descent[T]) GradientAt(grad, w []T, rng *rand.Rand) float64 {
	return d.Model.Gradient(grad, w, d.draw(rng))
}

// draw is the batch of one step. Every step has its own (SPEC decision 1 on lecture (85)).
func (d *Descent[T]) draw(rng *rand.Rand) Batch[T] {
	switch d.BatchSize {
	case 0:
		return d.Data.All()
	case 1:
		return d.Data.view(rng.IntN(d.Data.Len()))
	}
	d.Data.Draw(&d.batch, d.BatchSize, rng)
	return d.batch
}

func (d *Descent[T]) validate(steps int, weight float64) error {
	switch {
	case d.Data.Len() == 0:
		return errors.New("no samples to learn from")
	case d.Data.Inputs() != d.Model.arch.Inputs:
		return fmt.Errorf("samples with %d features for a model with %d inputs", d.Data.Inputs(), d.Model.arch.Inputs)
	case d.BatchSize < 0 || d.BatchSize > maxBatch:
		return fmt.Errorf("batch size %d; 1 to %d, or 0 for all rows", d.BatchSize, maxBatch)
	case steps < 1:
		return fmt.Errorf("%d local steps; at least 1", steps)
	case !(weight >= 0) || !finite(weight):
		return fmt.Errorf("agent weight %v; it must be finite and not negative", weight)
	}
	return d.Schedule.Validate()
}
