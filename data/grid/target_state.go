package grid

import (
	"cmp"
	"slices"
)

// targetState is the target of rows: a later value of an input, or a label that may come later.
type targetState struct {
	input            *inputState
	horizonPoints    int64 // points from a row to its target
	labelLateness    int64 // of a label, in nanoseconds; 0 = no label
	gridStep         int64
	maxRowWaitPoints int64 // points that a row may have to wait at most

	nextUndecidedPoint int64                   // the first point whose row is not decided
	measuredValues     []float64               // of closed points, in a ring: what was measured
	labelsByPoint      map[int64][]targetLabel // by point, in order of time
	labelCount         int                     // labels in all
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
		t.maxRowWaitPoints = t.labelLateness/step + 2 // the watermark is in the middle of a point
	}
	t.measuredValues = make([]float64, t.horizonPoints+1)
	return t
}

// noTargetState is that of rows without a target.
func noTargetState() targetState {
	return targetState{measuredValues: make([]float64, 1), labelsByPoint: map[int64][]targetLabel{}}
}

// startAtPoint starts at a point, with no row to be decided before.
func (t *targetState) startAtPoint(k int64) {
	t.nextUndecidedPoint = k
	for at, some := range t.labelsByPoint {
		if at < k {
			t.labelCount -= len(some)
			delete(t.labelsByPoint, at)
		}
	}
}

// storeMeasuredValue takes the value of a closed point.
func (t *targetState) storeMeasuredValue(k int64, v float64) {
	t.measuredValues[k%int64(len(t.measuredValues))] = v
}

// addLabel takes a label of a point, if there is room for most.
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

// nextTarget returns the target of the row at the next point, nothing if it has none. It is not decided while it may
// come. Points before open are closed.
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

// advancePoint goes on to the next point.
func (t *targetState) advancePoint() {
	t.labelCount -= len(t.labelsByPoint[t.nextUndecidedPoint])
	delete(t.labelsByPoint, t.nextUndecidedPoint)
	t.nextUndecidedPoint++
}
