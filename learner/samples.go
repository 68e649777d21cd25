package learner

import (
	"fmt"
	"math/rand/v2"
)

// Batch is a row-major view of n samples. The slice X of features has length n·Inputs, and the slice Y of targets has
// length n. Both are nil for samples that are not in memory: see [Samples.All].
type Batch[T Float] struct {
	X, Y []T

	tableReader *bufferedTableReader[T] // reader for samples that are not in memory; otherwise nil
}

// rowBlockSize is the number of rows that an objective processes together. It is large enough to reuse weights that are
// in the nearest CPU cache, and small enough to keep the scratch memory small compared with the model.
const rowBlockSize = 32

// Len returns the number of samples.
func (b Batch[T]) Len() int {
	if b.tableReader != nil {
		return b.tableReader.samples.sampleCount
	}
	return len(b.Y)
}

// rowBlock returns a view of at most rowBlockSize rows of b, starting at the row from.
func (b Batch[T]) rowBlock(from int) Batch[T] { return b.RowRange(from, rowBlockSize) }

// RowRange returns a view of at most the given number of rows of b, starting at the row from. For samples that are not
// in memory, the view is valid until the next call.
func (b Batch[T]) RowRange(from, rows int) Batch[T] {
	if b.tableReader != nil {
		return b.tableReader.readRows(from, rows)
	}
	if len(b.Y) <= rows {
		return b
	}
	inputs, to := len(b.X)/len(b.Y), min(from+rows, len(b.Y))
	return Batch[T]{X: b.X[from*inputs : to*inputs], Y: b.Y[from:to]}
}

// Samples is an agent's local data set: rows of features h, each with a target γ. The rows are in memory or in a
// [StoredTable].
type Samples[T Float] struct {
	featureCount, sampleCount int
	x, y                      []T
	table                     StoredTable[T]
	firstTableRow             int
}

// NewSamples returns samples that use the rows in x and y. The slice x contains the features in row-major order,
// [len(y), inputs]. NewSamples keeps the slices, and panics if their lengths are inconsistent.
func NewSamples[T Float](inputs int, x, y []T) *Samples[T] {
	if inputs < 1 || len(x) != len(y)*inputs {
		panic(fmt.Sprintf("learner: got %d feature values for %d samples with %d inputs", len(x), len(y), inputs))
	}
	return &Samples[T]{featureCount: inputs, sampleCount: len(y), x: x, y: y}
}

// Len returns the number of samples.
func (s *Samples[T]) Len() int { return s.sampleCount }

// FeatureCount returns the number of features per sample.
func (s *Samples[T]) FeatureCount() int { return s.featureCount }

// Row returns a view of the features of sample i, counted from 0, and the sample's target. For samples in a table it
// returns a copy.
func (s *Samples[T]) Row(i int) (x []T, y T) {
	if s.table != nil {
		x, targets := make([]T, s.featureCount), []T{0}
		s.readTableRows(x, targets, i)
		return x, targets[0]
	}
	return s.x[i*s.featureCount:][:s.featureCount:s.featureCount], s.y[i]
}

// HasSameRows reports whether s and o contain the same rows of the same memory or table.
func (s *Samples[T]) HasSameRows(o *Samples[T]) bool {
	if s.sampleCount != o.sampleCount || s.featureCount != o.featureCount || s.table != o.table ||
		s.firstTableRow != o.firstTableRow {
		return false
	}
	return s.table != nil || s.sampleCount == 0 || &s.y[0] == &o.y[0]
}

// FirstSamples returns a view of the first n samples, or of all samples if there are fewer than n.
func (s *Samples[T]) FirstSamples(n int) *Samples[T] {
	n = min(n, s.sampleCount)
	v := *s
	if v.sampleCount = n; s.table == nil {
		v.x, v.y = s.x[:n*s.featureCount], s.y[:n]
	}
	return &v
}

// SkipFirstSamples returns a view of the samples after the first n samples. The view is empty if there are at most n
// samples.
func (s *Samples[T]) SkipFirstSamples(n int) *Samples[T] {
	n = min(n, s.sampleCount)
	v := *s
	if v.sampleCount = s.sampleCount - n; s.table == nil {
		v.x, v.y = s.x[n*s.featureCount:], s.y[n:]
	}
	v.firstTableRow += n
	return &v
}

// All returns a view of all samples. The view must not be used concurrently. If the samples are in a table, RowRange
// reads their rows in pieces.
func (s *Samples[T]) All() Batch[T] {
	if s.table != nil {
		return Batch[T]{tableReader: &bufferedTableReader[T]{samples: s}}
	}
	return Batch[T]{X: s.x, Y: s.y}
}

// DrawBatch fills dst with copies of n samples, which it draws uniformly with replacement and independently of earlier
// draws (2nd-order paper, equation (7)). It reuses the memory of dst. It panics if there are no samples.
func (s *Samples[T]) DrawBatch(dst *Batch[T], n int, rng *rand.Rand) {
	dst.X = resizeSlice(dst.X, n*s.featureCount)
	dst.Y = resizeSlice(dst.Y, n)
	for i := range n {
		s.copyRow(dst, i, rng.IntN(s.sampleCount))
	}
}

// RandomSubset returns s if it has at most n samples. Otherwise it divides the samples into n parts and returns copies
// of n samples, one drawn uniformly from each part.
func (s *Samples[T]) RandomSubset(n int, rng *rand.Rand) *Samples[T] {
	if s.sampleCount <= n {
		return s
	}
	b := Batch[T]{X: make([]T, n*s.featureCount), Y: make([]T, n)}
	for i := range n {
		from, to := partStart(i, n, s.sampleCount), partStart(i+1, n, s.sampleCount)
		s.copyRow(&b, i, from+rng.IntN(to-from))
	}
	return NewSamples(s.featureCount, b.X, b.Y)
}

// partStart returns the index of the first element of part i, if n elements are divided into the given number of parts.
func partStart(i, parts, n int) int { return int(uint64(i) * uint64(n) / uint64(parts)) }

// copyRow copies sample k into row i of dst.
func (s *Samples[T]) copyRow(dst *Batch[T], i, k int) {
	into := dst.X[i*s.featureCount:][:s.featureCount]
	if s.table != nil {
		s.readTableRows(into, dst.Y[i:][:1], k)
		return
	}
	copy(into, s.x[k*s.featureCount:])
	dst.Y[i] = s.y[k]
}

func resizeSlice[T Float](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}
