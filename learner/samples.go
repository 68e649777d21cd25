package learner

import (
	"fmt"
	"math/rand/v2"
)

// Batch is a row-major view of n samples: X has length n·Inputs, Y length n. Of samples that are not in memory both are
// nil; see [Samples.All].
type Batch[T Float] struct {
	X, Y []T

	tableReader *bufferedTableReader[T] // over samples that are not in memory
}

// rowBlockSize is the number of rows that an objective gets together: enough that a row of weights is used from the
// nearest cache many times, and few enough that the scratch memory stays small beside the model.
const rowBlockSize = 32

// Len is the number of samples.
func (b Batch[T]) Len() int {
	if b.tableReader != nil {
		return b.tableReader.samples.sampleCount
	}
	return len(b.Y)
}

// rowBlock is the view of at most rowBlockSize rows of b, from row from on.
func (b Batch[T]) rowBlock(from int) Batch[T] { return b.RowRange(from, rowBlockSize) }

// RowRange is the view of at most so many rows of b, from row from on. Of samples that are not in memory it is valid
// until the next call.
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

// Samples is an agent's local data set: rows of features h, each with a target γ. They are in memory, or in a
// [StoredTable].
type Samples[T Float] struct {
	featureCount, sampleCount int
	x, y                      []T
	table                     StoredTable[T] // the rows of this one from row from on; nil if they are in memory
	firstTableRow             int
}

// NewSamples wraps rows: x is row-major [len(y), inputs]. It keeps the slices, and panics if their lengths disagree.
func NewSamples[T Float](inputs int, x, y []T) *Samples[T] {
	if inputs < 1 || len(x) != len(y)*inputs {
		panic(fmt.Sprintf("learner: %d features for %d samples of %d inputs", len(x), len(y), inputs))
	}
	return &Samples[T]{featureCount: inputs, sampleCount: len(y), x: x, y: y}
}

// Len is the number of samples.
func (s *Samples[T]) Len() int { return s.sampleCount }

// FeatureCount is the number of features of each.
func (s *Samples[T]) FeatureCount() int { return s.featureCount }

// Row is sample i, from 0: a view of its features, and its target. Of a table it is a copy.
func (s *Samples[T]) Row(i int) (x []T, y T) {
	if s.table != nil {
		x, targets := make([]T, s.featureCount), []T{0}
		s.readTableRows(x, targets, i)
		return x, targets[0]
	}
	return s.x[i*s.featureCount:][:s.featureCount:s.featureCount], s.y[i]
}

// HasSameRows reports whether two are the same rows of the same memory, or of the same table.
func (s *Samples[T]) HasSameRows(o *Samples[T]) bool {
	if s.sampleCount != o.sampleCount || s.featureCount != o.featureCount || s.table != o.table ||
		s.firstTableRow != o.firstTableRow {
		return false
	}
	return s.table != nil || s.sampleCount == 0 || &s.y[0] == &o.y[0]
}

// FirstSamples is a view of the first n samples, of all if there are no more.
func (s *Samples[T]) FirstSamples(n int) *Samples[T] {
	n = min(n, s.sampleCount)
	v := *s
	if v.sampleCount = n; s.table == nil {
		v.x, v.y = s.x[:n*s.featureCount], s.y[:n]
	}
	return &v
}

// SkipFirstSamples is a view of the samples after the first n, of none if there are no more.
func (s *Samples[T]) SkipFirstSamples(n int) *Samples[T] {
	n = min(n, s.sampleCount)
	v := *s
	if v.sampleCount = s.sampleCount - n; s.table == nil {
		v.x, v.y = s.x[n*s.featureCount:], s.y[n:]
	}
	v.firstTableRow += n
	return &v
}

// All is a view of every sample, for one goroutine. Of a table its rows are read in pieces, when Part asks for them.
func (s *Samples[T]) All() Batch[T] {
	if s.table != nil {
		return Batch[T]{tableReader: &bufferedTableReader[T]{samples: s}}
	}
	return Batch[T]{X: s.x, Y: s.y}
}

// DrawBatch fills dst with copies of n samples drawn uniformly with replacement, independently of every earlier draw
// (2nd-order (7)). It reuses dst's memory. It panics if there are no samples.
func (s *Samples[T]) DrawBatch(dst *Batch[T], n int, rng *rand.Rand) {
	dst.X = resizeSlice(dst.X, n*s.featureCount)
	dst.Y = resizeSlice(dst.Y, n)
	for i := range n {
		s.copyRow(dst, i, rng.IntN(s.sampleCount))
	}
}

// RandomSubset is s if it has at most n samples; else it is n copies in memory, one of each n-th part, drawn uniformly
// from it.
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

// partStart is where part i of so many parts of n begins.
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
