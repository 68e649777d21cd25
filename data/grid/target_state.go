package grid

import (
	"cmp"
	"slices"
)

// targetState provides the targets of rows: later values of an input, or labels that may arrive later.
type targetState struct {
	input            *inputState
	horizonPoints    int64 // number of points from a row to its target
	labelLateness    int64 // label lateness in nanoseconds; 0 means that the target is not a label
	gridStep         int64
	maxRowWaitPoints int64 // maximum number of points that a row may have to wait

	nextUndecidedPoint int64                   // first grid point whose row has not been made or dropped
	measuredValues     []float64               // ring buffer of the measured values of closed points
	labelsByPoint      map[int64][]targetLabel // labels by point, in order of time
	labelCount         int                     // total number of labels
}

type targetLabel struct {
	time   int64
	source uint64
	value  float64
}

func newTargetState(c *gridColumn, step int64) targetState {
	t := targetState{input: c.input, horizonPoints: c.lagOrWindowPoints, labelLateness: int64(c.input.LabelLateness),
		gridStep:      step,
		labelsByPoint: map[int64][]targetLabel{}}
	t.maxRowWaitPoints = t.horizonPoints
	if t.labelLateness > 0 {
		t.maxRowWaitPoints = t.labelLateness/step + 2 // the watermark may be in the middle of a grid point
	}
	t.measuredValues = make([]float64, t.horizonPoints+1)
	return t
}

// noTargetState returns the state for rows without a target.
func noTargetState() targetState {
	return targetState{measuredValues: make([]float64, 1), labelsByPoint: map[int64][]targetLabel{}}
}

// startAtPoint makes k the first undecided point and discards labels of earlier points.
func (t *targetState) startAtPoint(k int64) {
	t.nextUndecidedPoint = k
	for at, some := range t.labelsByPoint {
		if at < k {
			t.labelCount -= len(some)
			delete(t.labelsByPoint, at)
		}
	}
}

// storeMeasuredValue stores the value of closed point k.
func (t *targetState) storeMeasuredValue(k int64, v float64) {
	t.measuredValues[k%int64(len(t.measuredValues))] = v
}

// addLabel adds a label of point k. It returns a reason if the label is rejected. most limits the number of stored
// labels.
func (t *targetState) addLabel(l targetLabel, k int64, most int) UnusedReason {
	switch {
	case k < t.nextUndecidedPoint:
		return ReasonLate
	case t.labelCount >= most:
		return ReasonNoRoom
	}
	some := t.labelsByPoint[k]
	i, there := slices.BinarySearchFunc(some, l, func(a, b targetLabel) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.source, b.source))
	})
	if there {
		return ReasonDuplicate
	}
	t.labelsByPoint[k] = slices.Insert(some, i, l)
	t.labelCount++
	t.input.readingCounts.countUsed()
	return ""
}

// nextTarget returns the target of the next undecided row, or absentValue if the row has no target. decided is false
// while the target may still arrive. Grid points before open are closed.
func (t *targetState) nextTarget(open, watermark int64) (y float64, decided bool) {
	if t.labelLateness == 0 {
		at := t.nextUndecidedPoint + t.horizonPoints
		return t.measuredValues[at%int64(len(t.measuredValues))], at < open
	}
	some := t.labelsByPoint[t.nextUndecidedPoint]
	if len(some) == 0 {
		return absentValue, t.nextUndecidedPoint*t.gridStep+t.labelLateness < watermark
	}
	var j pointAggregate
	for _, l := range some {
		j.addValue(l.value)
	}
	return t.input.pointValue(j, false), true
}

// advancePoint moves to the next point and discards the labels of the current one.
func (t *targetState) advancePoint() {
	t.labelCount -= len(t.labelsByPoint[t.nextUndecidedPoint])
	delete(t.labelsByPoint, t.nextUndecidedPoint)
	t.nextUndecidedPoint++
}
