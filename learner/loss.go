package learner

import (
	"fmt"

	"github.com/fedmesh/fedmesh/spec"
)

// Loss is the loss Q of one sample with outputs z and target y. docs/ARCHITECTURE.md lists the steps to add a loss. The
// suite in loss_test.go checks every loss.
//
// A loss guarantees that Q ≥ 0 and that Q has the infimum 0 over z for every valid target. A loss that is a negative
// log-likelihood subtracts the value at the best z. The coordinator relies on this if it compares risks by a factor:
//   - The guard (round.RiskExploded, round.Plan.BaseModelDiverged) rejects a model whose risk is over 10 times an
//     earlier one. The guard does not work if the earlier risks are 0 or negative.
//   - The condition "model risk" of coordinator/aggregation ignores risks that are 0 or negative.
//   - The target round.stop.risk is positive. Patience (round/stop) and the choice between two models for predictions
//     (agent/predict) accept any sign, because they compare differences with the absolute value of a risk.
//
// Q may be +Inf if it overflows. Such a model is rejected as diverged.
type Loss[T Float] interface {
	// Risk returns the loss Q. If delta is not nil, it writes the derivatives of Q with respect to z to delta. The
	// result does not depend on delta. No exponential overflows if Q is finite. If an output is NaN, Q is NaN too.
	Risk(delta, z []T, y T) float64
	// LabelSet returns the set of valid targets of a model with the given number of outputs. MapLabels accepts exactly
	// the targets in this set. For a loss with StandardizesTarget, every number is valid.
	LabelSet(outputs int) LabelSet
	// MapLabels validates targets, which must be finite, and converts them in place to the form that the loss uses. The
	// error names the first invalid target and its row, counted from 1 after the rows in seen; the targets are then
	// unchanged. MapLabels updates seen except for the number of rows.
	MapLabels(y []T, outputs int, seen *LabelHistory) error
	// Predict returns the prediction for outputs z: a number, or the label of the most probable class. If the number is
	// not z[0], modelfile/export and the Python package must apply the same function.
	Predict(z []T) T
	// ClassProbabilities appends the probability of each class to dst, in the order of the classes. It appends nothing
	// if and only if the loss is a regression ([spec.LossKind.IsRegression]).
	ClassProbabilities(dst []float64, z []T) []float64
}

// lossConstructorByKind returns the constructor of the loss for each kind of loss.
func lossConstructorByKind[T Float]() map[spec.LossKind]func(Architecture) Loss[T] {
	return map[spec.LossKind]func(Architecture) Loss[T]{
		spec.LossSquared:     func(Architecture) Loss[T] { return squaredLoss[T]{} },
		spec.LossFullSquared: func(Architecture) Loss[T] { return unhalvedSquaredLoss[T]{} },
		spec.LossHuber:       func(a Architecture) Loss[T] { return huberLoss[T]{delta: a.HuberDelta} },
		spec.LossLogistic:    func(Architecture) Loss[T] { return logisticLoss[T]{} },
		spec.LossSoftmax:     func(Architecture) Loss[T] { return softmaxLoss[T]{} },
	}
}

func newLoss[T Float](a Architecture) Loss[T] { return lossConstructorByKind[T]()[a.Risk](a) }

// addRisks adds the losses of rows with outputs z, in the shape [rows,outputs], to sum. If delta is not nil, it writes
// the derivatives with respect to the outputs to delta, in the same shape.
func addRisks[T Float](sum float64, loss Loss[T], delta, z, y []T) float64 {
	outputs := len(z) / max(len(y), 1)
	for s, target := range y {
		var d []T
		if delta != nil {
			d = delta[s*outputs:][:outputs]
		}
		sum += loss.Risk(d, z[s*outputs:][:outputs], target)
	}
	return sum
}

// regressionLoss contains the methods that all regression losses share.
type regressionLoss[T Float] struct{}

func (regressionLoss[T]) LabelSet(int) LabelSet                             { return LabelSet{} }
func (regressionLoss[T]) MapLabels([]T, int, *LabelHistory) error           { return nil }
func (regressionLoss[T]) Predict(z []T) T                                   { return z[0] }
func (regressionLoss[T]) ClassProbabilities(dst []float64, _ []T) []float64 { return dst }

// LabelHistory describes the targets that were mapped so far, for mapping further targets. The zero value describes no
// rows.
type LabelHistory struct {
	rowCount                     int
	lastZeroRow, lastMinusOneRow int // last rows with the targets 0 and −1, counted from 1; 0 means none
}

// LabelSet is the set of valid targets of a loss. The zero value contains every number.
type LabelSet struct {
	ClassCount int  // number of classes, if the targets are the integers from 0 to ClassCount − 1; otherwise 0
	IsBinary   bool // whether the targets are 0 and 1, or −1 and 1
}

// LabelSet returns the set of valid targets for the architecture's loss.
func (a Architecture) LabelSet() LabelSet {
	newLoss, known := lossConstructorByKind[float32]()[a.Risk]
	if !known { // An external model accepts every target.
		return LabelSet{}
	}
	return newLoss(a).LabelSet(a.Outputs)
}

// Contains reports whether a target is in the set.
func (s LabelSet) Contains(y float64) bool {
	switch {
	case s.ClassCount > 0:
		return y >= 0 && y < float64(s.ClassCount) && y == float64(int(y))
	case s.IsBinary:
		return y == 1 || y == 0 || y == -1
	}
	return true
}

// String describes the set of targets for a message, such as "whole numbers from 0 to 2". It returns "" if the set
// contains every number.
func (s LabelSet) String() string {
	switch {
	case s.ClassCount > 0:
		return fmt.Sprintf("whole numbers from 0 to %d", s.ClassCount-1)
	case s.IsBinary:
		return "0 and 1, or -1 and 1"
	}
	return ""
}

// MapLabels validates the targets of samples in memory and converts them in place to the form that a valid architecture
// uses: see [Objective.MapLabels]. The parameter seen describes the preceding targets, and the result describes all
// targets.
func (s *Samples[T]) MapLabels(a Architecture, seen LabelHistory) (LabelHistory, error) {
	for i, y := range s.y {
		if y-y != 0 {
			return seen, fmt.Errorf("label %v in row %d is not finite", float64(y), seen.rowCount+i+1)
		}
	}
	all := seen
	if err := newObjective[T](a).MapLabels(s.y, &all); err != nil {
		return seen, err
	}
	all.rowCount += len(s.y)
	return all, nil
}
