package rows

import "github.com/fedmesh/fedmesh/learner"

// TargetFilter accepts the targets that are valid labels of a task. In a set of two classes, the second class is
// written as either 0 or −1, so a source that contains both numbers has errors. The filter accepts the number that
// occurred first and rejects the other number. If the rejected number becomes more frequent, acceptsRarerSecondClass
// returns true and the source has to be read again.
type TargetFilter struct {
	learner.LabelSet
	zeros, minusOnes      int
	acceptsMinusOne       bool // whether the second class is −1 and 0 is rejected; otherwise the reverse
	hasDecidedSecondClass bool // true once acceptsMinusOne is set
}

// Accept reports whether a target is a valid label, and counts targets of 0 and −1.
func (l *TargetFilter) Accept(y float64) bool {
	switch {
	case !l.Contains(y):
		return false
	case !l.IsBinary || y == 1:
		return true
	case y == 0:
		l.zeros++
	default:
		l.minusOnes++
	}
	if !l.hasDecidedSecondClass {
		l.acceptsMinusOne, l.hasDecidedSecondClass = y == -1, true
	}
	return l.acceptsMinusOne == (y == -1)
}

// FilterForNextPass returns the filter for another pass over the source. It accepts the more frequent number from the
// first row on.
func (l *TargetFilter) FilterForNextPass() TargetFilter {
	accept := l.acceptsMinusOne != l.acceptsRarerSecondClass()
	return TargetFilter{LabelSet: l.LabelSet, acceptsMinusOne: accept, hasDecidedSecondClass: l.hasDecidedSecondClass}
}

// acceptsRarerSecondClass reports whether the rejected number for the second class is more frequent than the accepted
// number.
func (l *TargetFilter) acceptsRarerSecondClass() bool {
	return l.hasDecidedSecondClass && (l.acceptsMinusOne && l.zeros > l.minusOnes || !l.acceptsMinusOne &&
		l.minusOnes > l.zeros)
}
