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
	had    bool // it has had a part in a round since it drew the last time
}

// luck is what an agent has drawn for a round. All attempts of the round count by it: who was drawn stays drawn when
// more are asked.
type luck struct {
	run   wire.RunID
	round wire.RoundID
	drew  uint32
}

// draw decides by chance whether the agent answers an announcement. One that is named takes part, and answers. One that
// has had a part in a round since the last draw is not drawn, if it may leave: else those that are still here would be
// drawn before those that are away.
func (a *Agent) draw(e *AnnouncementCame) {
	r, had := &e.Announcement.Respond, a.away.had
	a.lotteryOf, a.away.had = 0, false
	if a.lotteryLost = false; e.Weight > 0 || r.Of == 0 {
		return
	}
	if l := &a.luck; l.run != e.Order.Run || l.round != e.Order.Round {
		*l = luck{e.Order.Run, e.Order.Round, a.rng.Uint32()}
	}
	if a.lotteryLost = a.luck.drew >= r.Of || had && r.Longest() > 0; !a.lotteryLost {
		a.lotteryOf = r.Of
	}
}

// drawn is true with probability of/2³²; 0 is certain.
func (a *Agent) drawn(of uint32) bool { return of == 0 || a.rng.Uint32() < of }

// Silent reports whether the agent says no hello until it is drawn. With an update, or at work, it does, and when it
// lacks what it needs beyond the round.
func (a *Agent) Silent() bool { return a.lotteryLost && !a.needsReply && !a.HasPart() }

// HasPart reports whether the agent is at work in a round, or has an update that may still count.
func (a *Agent) HasPart() bool {
	return a.work != nil || a.saved != nil || a.awaitingOutcome != nil || a.early != nil
}

// MayLeave reports whether nothing of the round needs the link: the agent was not drawn to answer, or the round goes on
// without it.
func (a *Agent) MayLeave() bool {
	if !a.linkUp || !a.away.read || a.current == nil || a.needsReply || a.HasPart() {
		return false
	}
	r := &a.current.Announcement.Respond
	return r.Longest() > 0 && (a.lotteryLost || a.away.apart && !a.helloDue)
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
