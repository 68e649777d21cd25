package learner

import "fmt"

// Parts divides the flat vector of a model, of length d, into the tensors that all agents share and those that are an
// agent's own, each part in the order of the layout.
type Parts struct {
	own    []Range // ascending
	length int
	count  int // of own elements
}

// Parts returns the parts of a valid architecture whose own tensors have these names; see [Architecture.Ranges].
func (a Architecture) Parts(own []string) Parts {
	p := Parts{own: a.Ranges(own), length: a.Params()}
	for _, r := range p.own {
		p.count += r.To - r.From
	}
	return p
}

// Own is the number of elements of an agent's own tensors.
func (p Parts) Own() int { return p.count }

// Shared is the number of elements of the tensors that all agents share.
func (p Parts) Shared() int { return p.length - p.count }

// Join writes to dst, of length d, the shared and the own elements, of their numbers.
func Join[T Float](dst []T, p Parts, shared, own []T) {
	p.check(len(dst), len(shared), len(own))
	p.each(func(at Range, isOwn bool) {
		from := &shared
		if isOwn {
			from = &own
		}
		*from = (*from)[copy(dst[at.From:at.To], *from):]
	})
}

// Split writes the elements of w, of length d, to shared and own. Either may be nil, and is left out then; shared may
// be the beginning of w itself.
func Split[T Float](shared, own []T, p Parts, w []T) {
	n, m := p.Shared(), p.Own()
	if shared != nil {
		n = len(shared)
	}
	if own != nil {
		m = len(own)
	}
	p.check(len(w), n, m)
	if own != nil { // before shared, which may overwrite them
		at := 0
		for _, r := range p.own {
			at += copy(own[at:], w[r.From:r.To])
		}
	}
	if shared == nil {
		return
	}
	at := 0
	p.each(func(r Range, isOwn bool) {
		if !isOwn {
			at += copy(shared[at:], w[r.From:r.To])
		}
	})
}

// each calls take with the ranges of the vector, in order.
func (p Parts) each(take func(r Range, isOwn bool)) {
	at := 0
	for _, r := range p.own {
		take(Range{at, r.From}, false)
		take(r, true)
		at = r.To
	}
	take(Range{at, p.length}, false)
}

func (p Parts) check(d, shared, own int) {
	if d != p.length || shared != p.Shared() || own != p.Own() {
		panic(fmt.Sprintf("learner: vectors of %d, %d and %d elements for a model of %d, with %d of an agent's own", d,
			shared, own, p.length, p.count))
	}
}
