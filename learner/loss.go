package learner

import (
	"fmt"

	"github.com/fedmesh/fedmesh/spec"
)

// Loss is the risk Q of one sample with outputs z and target y. docs/ARCHITECTURE.md lists the steps to add a loss. The
// suite in loss_test.go checks every loss.
//
// A loss guarantees that Q ≥ 0 and that Q has the infimum 0 over z for every valid target. A loss that is a negative
// log-likelihood subtracts the value at the best z. The coordinator relies on this where it compares risks by a factor:
//   - The guard (round.RiskExploded, round.Plan.BaseModelDiverged) rejects a model whose risk is over 10 times an
//     earlier one. The guard does not work if the earlier risks are 0 or negative.
//   - The condition "model risk" of coordinator/aggregation ignores risks that are 0 or negative.
//   - The target round.stop.risk is positive. Patience (round/stop) and the choice between two models for predictions
//     (agent/predict) accept any sign, because they compare differences with the absolute value of a risk.
//
// Q may be +Inf where it overflows: such a model is rejected as diverged.
type Loss[T Float] interface {
	// Risk returns Q and, if delta is not nil, fills it with the derivatives by z. The result does not depend on
	// delta. No exponential overflows where Q is finite. If an output is NaN, so is Q.
	Risk(delta, z []T, y T) float64
	// LabelSet returns the set of valid targets of a model with that many outputs. MapLabels accepts exactly these. A
	// loss with StandardizesTarget accepts every number.
	LabelSet(outputs int) LabelSet
	// MapLabels checks targets, which are finite, and converts them to the form of the loss, in place. The error names
	// the first bad target and its row, counted from 1 after the rows in seen; then nothing is changed. MapLabels
	// records in seen what it needs to know about these rows when more follow, except their number.
	MapLabels(y []T, outputs int, seen *LabelHistory) error
	// Predict returns the prediction for outputs z: the number, or the label of the most probable class. If the number
	// is not z[0], modelfile/export and the Python package apply the same function.
	Predict(z []T) T
	// ClassProbabilities appends the probability of each class to dst, in the order of the classes. It appends nothing
	// if and only if the loss is a regression ([spec.LossKind.IsRegression]).
	ClassProbabilities(dst []float64, z []T) []float64
}

// lossConstructorByKind is the table of the risks.
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

// addRisks adds the risks of rows with outputs z, [rows,outputs], to sum. Where delta, of that shape, is not nil, it
// gets their derivatives by the outputs.
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

// regressionLoss contains the methods that all losses of regressions have in common.
type regressionLoss[T Float] struct{}

func (regressionLoss[T]) LabelSet(int) LabelSet                             { return LabelSet{} }
func (regressionLoss[T]) MapLabels([]T, int, *LabelHistory) error           { return nil }
func (regressionLoss[T]) Predict(z []T) T                                   { return z[0] }
func (regressionLoss[T]) ClassProbabilities(dst []float64, _ []T) []float64 { return dst }

// LabelHistory is what is known of targets that were mapped before others come. The zero value is of no rows.
type LabelHistory struct {
	rowCount                     int
	lastZeroRow, lastMinusOneRow int // the last rows, from 1, where a 0 and a −1 were seen; 0 = none
}

// LabelSet is the set of valid targets of a risk. The zero value contains every number.
type LabelSet struct {
	ClassCount int  // if above 0, the targets are the whole numbers from 0 to Classes − 1
	IsBinary   bool // the targets are 0 and 1, or −1 and 1
}

// LabelSet returns the set of valid targets for the architecture's risk.
func (a Architecture) LabelSet() LabelSet {
	newLoss, known := lossConstructorByKind[float32]()[a.Risk]
	if !known { // an external model
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

// String describes the set for a message, such as "whole numbers from 0 to 2". It is empty if the set contains every
// number.
func (s LabelSet) String() string {
	switch {
	case s.ClassCount > 0:
		return fmt.Sprintf("whole numbers from 0 to %d", s.ClassCount-1)
	case s.IsBinary:
		return "0 and 1, or -1 and 1"
	}
	return ""
}

// MapLabels checks the targets of samples in memory against a valid architecture and brings them into its form, in
// place: see [Objective.MapLabels]. They come after those that were seen; it returns what is known of all.
func (s *Samples[T]) MapLabels(a Architecture, seen LabelHistory) (LabelHistory, error) {
	for i, y := range s.y {
		if y-y != 0 {
			return seen, fmt.Errorf("label %v in row %d: not finite", float64(y), seen.rowCount+i+1)
		}
	}
	all := seen
	if err := newObjective[T](a).MapLabels(s.y, &all); err != nil {
		return seen, err
	}
	all.rowCount += len(s.y)
	return all, nil
}
