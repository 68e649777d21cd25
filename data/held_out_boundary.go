package data

import (
	"time"

	"github.com/fedmesh/fedmesh/learner"
)

// HeldOutBoundary parts the rows that are trained on from later ones, which are held out. It is fixed once for a run,
// so that a source that grows never moves a row from one side to the other: what comes later is held out.
type HeldOutBoundary struct {
	Time       time.Time // of the first row that is held out; zero where rows have no time
	RowsBefore int       // before it when it was fixed; counts where rows have no time
}

// HeldOutBoundary fixes a boundary before the last rows of a view: a share of them, at least one.
func (v RowSnapshot) HeldOutBoundary(share float64) HeldOutBoundary {
	n := v.Rows.Len()
	b := HeldOutBoundary{RowsBefore: n - max(1, int(share*float64(n)))}
	if v.Times != nil {
		b.Time = time.Unix(0, v.Times.At(b.RowsBefore)).UTC()
	}
	return b
}

// SplitHeldOut returns the rows on both sides of a boundary. Rows before it whose targets were measured behind it are
// on neither: no reading of a row that is held out was ever a target that is trained on.
func (v RowSnapshot) SplitHeldOut(b HeldOutBoundary) (trained, held *learner.Samples[float32]) {
	first, n := b.RowsBefore, b.RowsBefore
	if v.Times != nil && !b.Time.IsZero() {
		n, first = v.Times.FirstRowSince(b.Time.UnixNano()), v.Times.FirstRowSince(b.Time.UnixNano()-v.TargetDelay)
	}
	return v.Rows.FirstSamples(first), v.Rows.SkipFirstSamples(n)
}
