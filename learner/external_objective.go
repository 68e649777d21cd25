package learner

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// validateExternal returns an error for missing, duplicate or empty tensors.
func (a Architecture) validateExternal() error {
	var errs []error
	seen, total := map[string]bool{}, int64(0)
	for _, t := range a.ExternalTensors {
		n := int64(1)
		for _, s := range t.Shape {
			if n *= int64(s); s < 1 || n > maxParams {
				return fmt.Errorf("architecture: tensor %q has the shape %v, but must have at most %d elements and "+
					"no empty axis", t.Name, t.Shape, maxParams)
			}
		}
		if total += n; t.Name == "" || seen[t.Name] {
			errs = append(errs, fmt.Errorf("architecture: tensor name %q is empty or a duplicate", t.Name))
		}
		seen[t.Name] = true
	}
	if len(a.ExternalTensors) == 0 || total > maxParams {
		errs = append(errs, fmt.Errorf("architecture: %d tensors have %d parameters, but must have between 1 and %d "+
			"parameters",
			len(a.ExternalTensors), total, maxParams))
	}
	return errors.Join(errs...)
}

// externalObjective is the objective of an external model, whose tensors only a program of the device's owner can
// interpret. It is not in the table of kinds of models. Its initial parameters are zero, its risk is NaN, its outputs
// are 0, and its local steps change nothing.
type externalObjective[T Float] []TensorSpec

func (e externalObjective[T]) Layout() []TensorSpec                       { return e }
func (e externalObjective[T]) InitParameters([]T, *rand.Rand)             {}
func (e externalObjective[T]) AddRowRisks(float64, []T, Batch[T]) float64 { return math.NaN() }
func (e externalObjective[T]) Backward([]T, Batch[T]) float64             { return math.NaN() }
func (e externalObjective[T]) AddGradient([]T, Batch[T], float64)         {}
func (e externalObjective[T]) MapLabels([]T, *LabelHistory) error         { return nil }
func (e externalObjective[T]) RowOutputs(_ []T, b Batch[T]) []T           { return make([]T, b.Len()) }

func (e externalObjective[T]) RestandardizeParameters([]T, Standardization, Standardization) (bool, error) {
	return false, nil
}

func (e externalObjective[T]) SumScores(_ []T, s *Samples[T]) ScoreSums {
	return ScoreSums{RiskSum: math.NaN(), Samples: s.Len()}
}
