package data

import "github.com/fedmesh/fedmesh/learner"

// labelCount holds targets against the labels of a task. With Signs, the smaller of the numbers that stand for the
// second class is a mistake: of 0 and −1 the one that came first is taken, until the other is more frequent.
type labelCount struct {
	learner.LabelSet
	zeros, minuses int
	minus          bool // −1 is taken, and 0 is not
	chosen         bool // minus counts
}

// take reports whether a target is one of the labels.
func (l *labelCount) take(y float64) bool {
	switch {
	case l.Classes > 0:
		return y >= 0 && y < float64(l.Classes) && y == float64(int(y))
	case !l.Signs || y == 1:
		return true
	case y == 0:
		l.zeros++
	case y == -1:
		l.minuses++
	default:
		return false
	}
	if !l.chosen {
		l.minus, l.chosen = y == -1, true
	}
	return l.minus == (y == -1)
}

// wrong reports whether the labels that are not taken outnumber those that are.
func (l *labelCount) wrong() bool {
	return l.chosen && (l.minus && l.zeros > l.minuses || !l.minus && l.minuses > l.zeros)
}
