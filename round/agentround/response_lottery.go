package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// disconnectState is whether the agent may leave the broker for a while.
type disconnectState struct {
	announcementReceived    bool // an announcement has come over this link
	notSelectedForRound     bool // the round goes on without it, as it was told
	disconnectRequested     bool // the host has been told that it may leave
	hadWorkSinceLastLottery bool // it has had a part in a round since it drew the last time
}

// lotteryDraw is what an agent has drawn for a round. All attempts of the round count by it: who was drawn stays drawn
// when more are asked.
type lotteryDraw struct {
	run         wire.RunID
	round       wire.RoundID
	drawnNumber uint32
}

// drawLottery decides by chance whether the agent answers an announcement. One that is named takes part, and answers.
// One that has had a part in a round since the last draw is not drawn, if it may leave: else those that are still here
// would be drawn before those that are away.
func (a *Machine) drawLottery(e *AnnouncementReceived) {
	r, had := &e.Announcement.ResponsePolicy, a.disconnectState.hadWorkSinceLastLottery
	a.lotteryThreshold, a.disconnectState.hadWorkSinceLastLottery = 0, false
	if a.lotteryLost = false; e.StepWeight > 0 || r.AnswerProbability == 0 {
		return
	}
	if l := &a.lotteryDraw; l.run != e.Position.Run || l.round != e.Position.Round {
		*l = lotteryDraw{e.Position.Run, e.Position.Round, a.rng.Uint32()}
	}
	if a.lotteryLost = a.lotteryDraw.drawnNumber >= r.AnswerProbability || had &&
		r.MaxDisconnectTime() > 0; !a.lotteryLost {
		a.lotteryThreshold = r.AnswerProbability
	}
}

// winsLottery is true with probability of/2³²; 0 is certain.
func (a *Machine) winsLottery(of uint32) bool { return of == 0 || a.rng.Uint32() < of }

// SendsNoHello reports whether the agent says no hello until it is drawn. With an update, or at work, it does, and when
// it lacks what it needs beyond the round.
func (a *Machine) SendsNoHello() bool {
	return a.lotteryLost && !a.awaitsHelloAnswer && !a.HasRoundWork()
}

// HasRoundWork reports whether the agent is at work in a round, or has an update that may still count.
func (a *Machine) HasRoundWork() bool {
	return a.currentWork != nil || a.savedUpdate != nil || a.workAwaitingFate != nil || a.pendingInvitation != nil
}

// MayDisconnect reports whether nothing of the round needs the link: the agent was not drawn to answer, or the round
// goes on without it.
func (a *Machine) MayDisconnect() bool {
	if !a.linkUp || !a.disconnectState.announcementReceived || a.currentAnnouncement == nil || a.awaitsHelloAnswer ||
		a.HasRoundWork() {
		return false
	}
	r := &a.currentAnnouncement.Announcement.ResponsePolicy
	return r.MaxDisconnectTime() > 0 && (a.lotteryLost || a.disconnectState.notSelectedForRound && !a.isHelloDue)
}

// requestDisconnect has the host leave, once for a link and an announcement: for return_after and a random part of
// return_within.
func (a *Machine) requestDisconnect() {
	if a.disconnectState.disconnectRequested || !a.MayDisconnect() {
		return
	}
	a.disconnectState.disconnectRequested = true
	r := &a.currentAnnouncement.Announcement.ResponsePolicy
	a.emitEffect(AllowDisconnect{time.Duration(r.DisconnectMillis)*time.Millisecond +
		a.jitter(time.Duration(r.AbsenceSpreadMillis)*time.Millisecond)})
}

// recordNonSelection takes note of an open round that names others.
func (a *Machine) recordNonSelection(e *AnnouncementReceived) {
	a.disconnectState.notSelectedForRound = e.Announcement.Phase == wire.PhaseOpen &&
		len(e.Announcement.Selection.AgentTags) > 0 &&
		e.StepWeight == 0
	a.disconnectState.disconnectRequested = false
}
