package learner

import "slices"

// ParameterSplit divides the parameter vector of a model into the tensors that all agents share and the tensors that
// each agent keeps for itself.
type ParameterSplit struct {
	SharedLayout, OwnLayout []TensorSpec // tensors of each part, in the order of the part's parameter vector

	ownRanges       []ElementRange // ranges of the agent's own elements in the parameter vector, ascending
	parameterCount  int
	ownElementCount int // number of elements that an agent keeps for itself
}

// NewParameterSplit returns the division of a valid architecture's parameters in which each agent keeps the named
// tensors for itself (see [Architecture.TensorRanges]) and shares the others.
func (a Architecture) NewParameterSplit(own []string) *ParameterSplit {
	p := &ParameterSplit{ownRanges: a.TensorRanges(own)}
	for _, t := range a.Layout() {
		n := int(t.elementCount())
		if slices.Contains(p.ownRanges, ElementRange{p.parameterCount, p.parameterCount + n}) {
			p.OwnLayout = append(p.OwnLayout, t)
			p.ownElementCount += n
		} else {
			p.SharedLayout = append(p.SharedLayout, t)
		}
		p.parameterCount += n
	}
	return p
}

// OwnElementCount returns the number of elements of the tensors that an agent keeps for itself.
func (p *ParameterSplit) OwnElementCount() int { return p.ownElementCount }

// SharedElementCount returns the number of elements of the shared tensors.
func (p *ParameterSplit) SharedElementCount() int { return p.parameterCount - p.ownElementCount }

// JoinParameters merges the shared elements and the agent's own elements into dst, which has length d.
func JoinParameters[T Float](dst []T, p *ParameterSplit, shared, own []T) {
	at := 0
	for _, r := range p.ownRanges {
		n := copy(dst[at:r.From], shared)
		shared, own, at = shared[n:], own[copy(dst[r.From:r.To], own):], r.To
	}
	copy(dst[at:], shared)
}

// SplitParameters copies the elements of w to shared and own. Either slice may be nil if it is not needed, and shared
// may be the beginning of w itself.
func SplitParameters[T Float](shared, own []T, p *ParameterSplit, w []T) {
	at, from := 0, 0
	for _, r := range p.ownRanges {
		if own != nil { // Copy own first, since writing shared may overwrite these elements.
			own = own[copy(own, w[r.From:r.To]):]
		}
		if shared != nil {
			at += copy(shared[at:], w[from:r.From])
		}
		from = r.To
	}
	if shared != nil {
		copy(shared[at:], w[from:])
	}
}
