package data

import (
	"time"

	"github.com/fedmesh/fedmesh/learner"
)

// HeldOutBoundary separates the training rows from later, held-out rows. It is fixed once per run, so that rows never
// move from one side to the other when the source grows. New rows are always held out.
type HeldOutBoundary struct {
	Time       time.Time // time of the first held-out row; zero if rows have no time
	RowsBefore int       // number of rows before the boundary when it was fixed; used if rows have no time
}

// HeldOutBoundary returns a boundary that holds out the given share of the rows, taken from the end. At least one row
// is held out.
func (v RowSnapshot) HeldOutBoundary(share float64) HeldOutBoundary {
	n := v.Rows.Len()
	b := HeldOutBoundary{RowsBefore: n - max(1, int(share*float64(n)))}
	if v.Times != nil {
		b.Time = time.Unix(0, v.Times.At(b.RowsBefore)).UTC()
	}
	return b
}

// SplitHeldOut returns the rows before and after a boundary. It omits rows before the boundary whose targets were
// measured after the boundary, so that no training target comes from held-out data.
func (v RowSnapshot) SplitHeldOut(b HeldOutBoundary) (trained, held *learner.Samples[float32]) {
	first, n := b.RowsBefore, b.RowsBefore
	if v.Times != nil && !b.Time.IsZero() {
		n, first = v.Times.FirstRowSince(b.Time.UnixNano()), v.Times.FirstRowSince(b.Time.UnixNano()-v.TargetDelay)
	}
	return v.Rows.FirstSamples(first), v.Rows.SkipFirstSamples(n)
}
