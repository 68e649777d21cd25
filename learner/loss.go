package learner

import (
	"fmt"

	"github.com/fedmesh/fedmesh/spec"
)

// Loss is the risk Q of one sample with outputs z and target y. A new one costs a file, a line in losses, its word in
// package spec and a paragraph in docs/ALGORITHMS.md; the suite in loss_test.go holds its derivatives against
// differences.
type Loss[T Float] interface {
	// Risk returns Q and, where delta is not nil, fills it with the derivatives by z. Its exponentials do
	// not overflow, and a NaN gives a NaN.
	Risk(delta, z []T, y T) float64
	// MapLabels checks targets and brings them into the loss's form, in place. The error names the first bad one and
	// its row, counted from 1 and after those seen before, and nothing is changed then. The caller has seen to it that
	// all are finite. It notes in seen what it must know when more rows come, but for their number.
	MapLabels(y []T, outputs int, seen *LabelHistory) error
	// Predict returns the label that outputs z speak for: for a regression, z itself.
	Predict(z []T) T
	// ClassProbabilities appends to dst the probability of each class, in their order, given outputs z: none for a
	// regression.
	ClassProbabilities(dst []float64, z []T) []float64
}

// lossConstructorByRisk is the table of the risks.
func lossConstructorByRisk[T Float]() map[spec.Risk]func(Architecture) Loss[T] {
	return map[spec.Risk]func(Architecture) Loss[T]{
		spec.RiskSquared:     func(Architecture) Loss[T] { return squaredLoss[T]{} },
		spec.RiskFullSquared: func(Architecture) Loss[T] { return unhalvedSquaredLoss[T]{} },
		spec.RiskHuber:       func(a Architecture) Loss[T] { return huber[T]{delta: a.HuberDelta} },
		spec.RiskLogistic:    func(Architecture) Loss[T] { return logistic[T]{} },
		spec.RiskSoftmax:     func(Architecture) Loss[T] { return softmax[T]{} },
	}
}

func newLoss[T Float](a Architecture) Loss[T] { return lossConstructorByRisk[T]()[a.Risk](a) }

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

// regressionLoss is what the losses of regressions have in common.
type regressionLoss[T Float] struct{}

func (regressionLoss[T]) MapLabels([]T, int, *LabelHistory) error           { return nil }
func (regressionLoss[T]) Predict(z []T) T                                   { return z[0] }
func (regressionLoss[T]) ClassProbabilities(dst []float64, _ []T) []float64 { return dst }

// LabelHistory is what is known of targets that were mapped before others come. The zero value is of no rows.
type LabelHistory struct {
	rows                      int
	lastZeroRow, lastMinusRow int // the last rows, from 1, where a 0 and a −1 were seen; 0 = none
}

// LabelSet is the set of valid targets of a risk. The zero value contains every number.
type LabelSet struct {
	Classes int  // if above 0, the targets are the whole numbers from 0 to Classes − 1
	Binary  bool // the targets are 0 and 1, or −1 and 1
}

// LabelSet returns the set of valid targets for the architecture's risk.
func (a Architecture) LabelSet() LabelSet {
	switch a.Risk {
	case spec.RiskSoftmax:
		return LabelSet{Classes: a.Outputs}
	case spec.RiskLogistic:
		return LabelSet{Binary: true}
	}
	return LabelSet{}
}

// MapLabels checks the targets of samples in memory against a valid architecture and brings them into its form, in
// place: see [Objective.Labels]. They come after those that were seen; it returns what is known of all.
func (s *Samples[T]) MapLabels(a Architecture, seen LabelHistory) (LabelHistory, error) {
	for i, y := range s.y {
		if y-y != 0 {
			return seen, fmt.Errorf("label %v in row %d: not finite", float64(y), seen.rows+i+1)
		}
	}
	all := seen
	if err := newObjective[T](a).MapLabels(s.y, &all); err != nil {
		return seen, err
	}
	all.rows += len(s.y)
	return all, nil
}
