package learner

import (
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// Batch is a row-major view of n samples: X has length n·Inputs, Y length n.
type Batch[T Float] struct{ X, Y []T }

// Samples is an agent's local data set in memory: rows of features h, each with a target γ.
type Samples[T Float] struct {
	inputs int
	x, y   []T
}

// NewSamples wraps rows: x is row-major [len(y), inputs]. It keeps the slices, and panics if their lengths disagree.
func NewSamples[T Float](inputs int, x, y []T) *Samples[T] {
	if inputs < 1 || len(x) != len(y)*inputs {
		panic(fmt.Sprintf("learner: %d features for %d samples of %d inputs", len(x), len(y), inputs))
	}
	return &Samples[T]{inputs: inputs, x: x, y: y}
}

// Len is the number of samples.
func (s *Samples[T]) Len() int { return len(s.y) }

// Inputs is the number of features of each.
func (s *Samples[T]) Inputs() int { return s.inputs }

// Row is sample i, from 0: a view of its features, and its target.
func (s *Samples[T]) Row(i int) (x []T, y T) {
	return s.x[i*s.inputs:][:s.inputs:s.inputs], s.y[i]
}

// All is a view of every sample.
func (s *Samples[T]) All() Batch[T] { return Batch[T]{X: s.x, Y: s.y} }

// Draw fills dst with copies of n samples drawn uniformly with replacement, independently of every earlier draw
// (2nd-order (7)). It reuses dst's memory. It panics if there are no samples.
func (s *Samples[T]) Draw(dst *Batch[T], n int, rng *rand.Rand) {
	dst.X = resize(dst.X, n*s.inputs)
	dst.Y = resize(dst.Y, n)
	for i := range n {
		x, y := s.Row(rng.IntN(len(s.y)))
		copy(dst.X[i*s.inputs:], x)
		dst.Y[i] = y
	}
}

func resize[T Float](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

// MapLabels checks the targets against a risk and brings them into its form, in place. Squared and FullSquared: any
// finite number. Logistic: 0/1 or ±1 become ±1. Softmax: integers from 0 to outputs−1. The error names the first bad
// value and its row, counted from 1, and nothing is changed then.
func (s *Samples[T]) MapLabels(risk spec.Risk, outputs int) error {
	zero, minus := -1, -1 // rows where a 0 and a −1 were seen
	for i, y := range s.y {
		v := float64(y)
		switch {
		case !finite(v):
			return fmt.Errorf("label %v in row %d: not finite", v, i+1)
		case risk == spec.RiskLogistic && v == 0:
			zero = i
		case risk == spec.RiskLogistic && v == -1:
			minus = i
		case risk == spec.RiskLogistic && v != 1:
			return fmt.Errorf("label %v in row %d: the logistic risk takes 0 and 1, or -1 and 1", v, i+1)
		case risk == spec.RiskSoftmax && !(v >= 0 && v < float64(outputs) && v == float64(int(v))):
			return fmt.Errorf("label %v in row %d: the softmax risk takes whole numbers from 0 to %d", v, i+1,
				outputs-1)
		}
		if zero >= 0 && minus >= 0 {
			return fmt.Errorf("label %v in row %d and %v in row %d: the logistic risk takes 0 and 1, or -1 and 1",
				s.y[min(zero, minus)], min(zero, minus)+1, v, i+1)
		}
	}
	if zero >= 0 {
		for i, y := range s.y {
			s.y[i] = 2*y - 1
		}
	}
	return nil
}
