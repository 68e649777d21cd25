package grid

import (
	"cmp"
	"slices"
)

// targetState is the target of rows: a later value of an input, or a label that may come later.
type targetState struct {
	input          *input
	pointsAhead    int64 // points from a row to its target
	labelWait      int64 // of a label, in nanoseconds; 0 = no label
	step           int64
	maxDelayPoints int64 // points that a row may have to wait at most

	nextUndecided int64                   // the first point whose row is not decided
	values        []float64               // of closed points, in a ring: what was measured
	labels        map[int64][]targetLabel // by point, in order of time
	labelCount    int                     // labels in all
}

type targetLabel struct {
	time   int64
	source uint64
	value  float64
}

func newTargetState(c *column, step int64) targetState {
	t := targetState{input: c.input, pointsAhead: c.windowPoints, labelWait: int64(c.input.LabelLateness), step: step,
		labels: map[int64][]targetLabel{}}
	t.maxDelayPoints = t.pointsAhead
	if t.labelWait > 0 {
		t.maxDelayPoints = t.labelWait/step + 2 // the watermark is in the middle of a point
	}
	t.values = make([]float64, t.pointsAhead+1)
	return t
}

// noTargetState is that of rows without a target.
func noTargetState() targetState {
	return targetState{values: make([]float64, 1), labels: map[int64][]targetLabel{}}
}

// begin starts at a point, with no row to be decided before.
func (t *targetState) begin(k int64) {
	t.nextUndecided = k
	for at, some := range t.labels {
		if at < k {
			t.labelCount -= len(some)
			delete(t.labels, at)
		}
	}
}

// measured takes the value of a closed point.
func (t *targetState) measured(k int64, v float64) { t.values[k%int64(len(t.values))] = v }

// addLabel takes a label of a point, if there is room for most.
func (t *targetState) addLabel(l targetLabel, k int64, most int) Reason {
	switch {
	case k < t.nextUndecided:
		return Late
	case t.labelCount >= most:
		return Dropped
	}
	some := t.labels[k]
	i, there := slices.BinarySearchFunc(some, l, func(a, b targetLabel) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.source, b.source))
	})
	if there {
		return Duplicate
	}
	t.labels[k] = slices.Insert(some, i, l)
	t.labelCount++
	t.input.count.use()
	return ""
}

// nextTarget returns the target of the row at the next point, nothing if it has none. It is not decided while it may
// come. Points before open are closed.
func (t *targetState) nextTarget(open, watermark int64) (y float64, decided bool) {
	if t.labelWait == 0 {
		at := t.nextUndecided + t.pointsAhead
		return t.values[at%int64(len(t.values))], at < open
	}
	some := t.labels[t.nextUndecided]
	if len(some) == 0 {
		return absentValue, t.nextUndecided*t.step+t.labelWait < watermark
	}
	var j pointAggregate
	for _, l := range some {
		j.add(l.value)
	}
	return t.input.pointValue(j, false), true
}

// advancePoint goes on to the next point.
func (t *targetState) advancePoint() {
	t.labelCount -= len(t.labels[t.nextUndecided])
	delete(t.labels, t.nextUndecided)
	t.nextUndecided++
}
