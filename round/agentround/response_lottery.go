package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// disconnectState contains the facts that determine whether the agent may disconnect from the broker for some time.
type disconnectState struct {
	announcementReceived    bool // whether an announcement has arrived over this connection
	notSelectedForRound     bool // whether the coordinator continues the round without this agent
	disconnectRequested     bool // whether the effect AllowDisconnect was already emitted
	hadWorkSinceLastLottery bool // whether the agent has worked in a round since its last lottery draw
}

// lotteryDraw is an agent's random number in the response lottery of a round. All attempts of the round use the same
// number, so an agent that won an attempt also wins later attempts with a higher answer probability.
type lotteryDraw struct {
	run         wire.RunID
	round       wire.RoundID
	drawnNumber uint32
}

// drawLottery decides at random whether the agent answers an announcement; an agent that the announcement lists as
// drawn always answers. An agent that has just worked in a round loses if it may disconnect, because connected agents
// would otherwise be drawn more often than disconnected ones.
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

// winsLottery returns true with probability of/2³², where of is the announced threshold. It always returns true if of
// is 0.
func (a *Machine) winsLottery(of uint32) bool { return of == 0 || a.rng.Uint32() < of }

// SendsNoHello reports whether the agent sends no hello message because it has lost the response lottery. An agent with
// work in a round, with an unsent update, or with a pending download sends a hello message in any case.
func (a *Machine) SendsNoHello() bool {
	return a.lotteryLost && !a.awaitsHelloAnswer && !a.HasRoundWork()
}

// HasRoundWork reports whether the agent works in a round, or has an update that may still be accepted.
func (a *Machine) HasRoundWork() bool {
	return a.currentWork != nil || a.savedUpdate != nil || a.workAwaitingFate != nil || a.pendingInvitation != nil
}

// MayDisconnect reports whether the agent may disconnect from the broker because it lost the response lottery or was
// not drawn for the round.
func (a *Machine) MayDisconnect() bool {
	if !a.linkUp || !a.disconnectState.announcementReceived || a.currentAnnouncement == nil || a.awaitsHelloAnswer ||
		a.HasRoundWork() {
		return false
	}
	r := &a.currentAnnouncement.Announcement.ResponsePolicy
	return r.MaxDisconnectTime() > 0 && (a.lotteryLost || a.disconnectState.notSelectedForRound && !a.isHelloDue)
}

// requestDisconnect emits AllowDisconnect once per connection and announcement. The duration is the option return_after
// plus a random part of the option return_within.
func (a *Machine) requestDisconnect() {
	if a.disconnectState.disconnectRequested || !a.MayDisconnect() {
		return
	}
	a.disconnectState.disconnectRequested = true
	r := &a.currentAnnouncement.Announcement.ResponsePolicy
	a.emitEffect(AllowDisconnect{time.Duration(r.DisconnectMillis)*time.Millisecond +
		a.jitter(time.Duration(r.AbsenceSpreadMillis)*time.Millisecond)})
}

// recordNonSelection records whether an announcement opens a round and lists only other agents as drawn.
func (a *Machine) recordNonSelection(e *AnnouncementReceived) {
	a.disconnectState.notSelectedForRound = e.Announcement.Phase == wire.PhaseOpen &&
		len(e.Announcement.Selection.AgentTags) > 0 &&
		e.StepWeight == 0
	a.disconnectState.disconnectRequested = false
}
