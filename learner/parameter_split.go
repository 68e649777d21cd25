package learner

import "slices"

// ParameterSplit divides the flat vector of a model, of length d, into the tensors that all agents share and those that
// are an agent's own, each part in the order of the layout.
type ParameterSplit struct {
	SharedLayout, OwnLayout []TensorSpec // in the order of their vectors

	ownRanges       []ElementRange // ascending
	parameterCount  int
	ownElementCount int // of own elements
}

// NewParameterSplit returns the parts of a valid architecture whose own tensors have these names; see
// [Architecture.TensorRanges].
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

// OwnElementCount is the number of elements of an agent's own tensors.
func (p *ParameterSplit) OwnElementCount() int { return p.ownElementCount }

// SharedElementCount is the number of elements of the tensors that all agents share.
func (p *ParameterSplit) SharedElementCount() int { return p.parameterCount - p.ownElementCount }

// JoinParameters writes to dst, of length d, the shared and the own elements, of their numbers.
func JoinParameters[T Float](dst []T, p *ParameterSplit, shared, own []T) {
	at := 0
	for _, r := range p.ownRanges {
		n := copy(dst[at:r.From], shared)
		shared, own, at = shared[n:], own[copy(dst[r.From:r.To], own):], r.To
	}
	copy(dst[at:], shared)
}

// SplitParameters writes the elements of w, of length d, to shared and own. Either may be nil, and is left out then;
// shared may be the beginning of w itself.
func SplitParameters[T Float](shared, own []T, p *ParameterSplit, w []T) {
	at, from := 0, 0
	for _, r := range p.ownRanges {
		if own != nil { // before shared, which may overwrite them
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
