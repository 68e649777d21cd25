package learner

import (
	"fmt"
	"math/rand/v2"
)

// Batch is a row-major view of n samples: X has length n·Inputs, Y length n.
type Batch[T Float] struct{ X, Y []T }

// blockRows is the number of rows that an objective gets together: enough that a row of weights is used from the
// nearest cache many times, and few enough that the scratch memory stays small beside the model.
const blockRows = 32

// block is the view of at most blockRows rows of b, from row from on.
func (b Batch[T]) block(from int) Batch[T] { return b.part(from, blockRows) }

// part is the view of at most so many rows of b, from row from on.
func (b Batch[T]) part(from, rows int) Batch[T] {
	if len(b.Y) <= rows {
		return b
	}
	inputs, to := len(b.X)/len(b.Y), min(from+rows, len(b.Y))
	return Batch[T]{X: b.X[from*inputs : to*inputs], Y: b.Y[from:to]}
}

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

// First is a view of the first n samples, of all if there are no more.
func (s *Samples[T]) First(n int) *Samples[T] {
	n = min(n, len(s.y))
	return &Samples[T]{inputs: s.inputs, x: s.x[:n*s.inputs], y: s.y[:n]}
}

// After is a view of the samples after the first n, of none if there are no more.
func (s *Samples[T]) After(n int) *Samples[T] {
	n = min(n, len(s.y))
	return &Samples[T]{inputs: s.inputs, x: s.x[n*s.inputs:], y: s.y[n:]}
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
