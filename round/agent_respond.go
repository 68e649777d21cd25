package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// away is whether the agent may leave the broker for a while.
type away struct {
	read   bool // an announcement has come over this link
	apart  bool // the round goes on without it, as it was told
	leaves bool // the host has been told that it may leave
}

// draw decides by chance whether the agent answers an announcement. One that is named takes part, and answers.
func (a *Agent) draw(e *AnnouncementCame) {
	of := e.Announcement.Respond.Of
	a.undrawn = e.Weight == 0 && !a.drawn(of)
	if a.drew = of; a.undrawn || e.Weight > 0 {
		a.drew = 0
	}
}

// drawn is true with probability of/2³²; 0 is certain.
func (a *Agent) drawn(of uint32) bool { return of == 0 || a.rng.Uint32() < of }

// silent reports whether the agent says no hello until it is drawn. With an update, or at work, it does.
func (a *Agent) silent() bool { return a.undrawn && !a.HasPart() }

// HasPart reports whether the agent is at work in a round, or has an update that may still count.
func (a *Agent) HasPart() bool {
	return a.work != nil || a.saved != nil || a.parted != nil || a.early != nil
}

// MayLeave reports whether nothing of the round needs the link: the agent was not drawn to answer, or the round goes on
// without it.
func (a *Agent) MayLeave() bool {
	if !a.linkUp || !a.away.read || a.current == nil || a.HasPart() {
		return false
	}
	r := &a.current.Announcement.Respond
	return r.After+r.Within > 0 && (a.undrawn || a.away.apart && !a.helloDue)
}

// leave has the host leave, once for a link and an announcement: for return_after and a random part of return_within.
func (a *Agent) leave() {
	if a.away.leaves || !a.MayLeave() {
		return
	}
	a.away.leaves = true
	r := &a.current.Announcement.Respond
	a.do(Leave{time.Duration(r.After)*time.Millisecond + a.jitter(time.Duration(r.Within)*time.Millisecond)})
}

// passedOver takes note of an open round that names others.
func (a *Agent) passedOver(e *AnnouncementCame) {
	a.away.apart = e.Announcement.Phase == wire.PhaseOpen && len(e.Announcement.Selection.Tags) > 0 && e.Weight == 0
	a.away.leaves = false
}
