package grid

import (
	"cmp"
	"slices"
)

// goal is the target of rows: a later value of an input, or a label that may come later.
type goal struct {
	input *input
	ahead int64 // points from a row to its target
	wait  int64 // of a label, in nanoseconds; 0 = no label
	step  int64
	delay int64 // points that a row may have to wait at most

	next   int64             // the first point whose row is not decided
	values []float64         // of closed points, in a ring: what was measured
	labels map[int64][]label // by point, in order of time
	kept   int               // labels in all
}

type label struct {
	time   int64
	source uint64
	value  float64
}

func newGoal(c *column, step int64) goal {
	t := goal{input: c.input, ahead: c.points, wait: int64(c.input.Wait), step: step, labels: map[int64][]label{}}
	t.delay = t.ahead
	if t.wait > 0 {
		t.delay = t.wait/step + 2 // the watermark is in the middle of a point
	}
	t.values = make([]float64, t.ahead+1)
	return t
}

// noGoal is that of rows without a target.
func noGoal() goal { return goal{values: make([]float64, 1), labels: map[int64][]label{}} }

// begin starts at a point, with no row to be decided before.
func (t *goal) begin(k int64) {
	t.next = k
	for at, some := range t.labels {
		if at < k {
			t.kept -= len(some)
			delete(t.labels, at)
		}
	}
}

// measured takes the value of a closed point.
func (t *goal) measured(k int64, v float64) { t.values[k%int64(len(t.values))] = v }

// take takes a label of a point, if there is room for most.
func (t *goal) take(l label, k int64, most int) Reason {
	switch {
	case k < t.next:
		return Late
	case t.kept >= most:
		return Dropped
	}
	some := t.labels[k]
	i, there := slices.BinarySearchFunc(some, l, func(a, b label) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.source, b.source))
	})
	if there {
		return Twice
	}
	t.labels[k] = slices.Insert(some, i, l)
	t.kept++
	t.input.count.use()
	return ""
}

// of returns the target of the row at the next point, nothing if it has none. It is not decided while it may come.
// Points before open are closed.
func (t *goal) of(open, watermark int64) (y float64, decided bool) {
	if t.wait == 0 {
		at := t.next + t.ahead
		return t.values[at%int64(len(t.values))], at < open
	}
	some := t.labels[t.next]
	if len(some) == 0 {
		return nothing, t.next*t.step+t.wait < watermark
	}
	var j joining
	for _, l := range some {
		j.add(l.value)
	}
	return t.input.joined(j, false), true
}

// pass goes on to the next point.
func (t *goal) pass() {
	t.kept -= len(t.labels[t.next])
	delete(t.labels, t.next)
	t.next++
}
