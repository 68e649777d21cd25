package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleAnnouncement obeys an announcement that is not older than the last one obeyed,
// and an equal one only if it is the same.
func (a *Machine) handleAnnouncement(now time.Time, e AnnouncementReceived) {
	switch order := e.Position.Compare(a.obeyedPosition); {
	case order < 0:
		a.report(AnnouncementIgnored{e.Position, IgnoredOlder})
		a.scheduleCorrectiveHello(now, &e.Announcement)
	case order == 0 && e.EnvelopeDigest != a.obeyedDigest:
		a.report(AnnouncementIgnored{e.Position, IgnoredConflict})
	case order > 0:
		a.acceptSelection(now, &e)
		a.emit(SavePosition{e.Position, e.EnvelopeDigest}) // beside what follows
		a.follow(now, e)
	case a.currentAnnouncement == nil:
		a.acceptSelection(now, &e)
		a.follow(now, e)
	} // else the broker said it again
}

// acceptSelection takes an announcement that names this agent for an invitation, if the broker did not keep it: then
// the round has just begun. Else the agent says hello, and the answer tells how much time is left. So it does when it
// cannot tell of how many rows the coordinator takes an update: the answer says that, too.
func (a *Machine) acceptSelection(now time.Time, e *AnnouncementReceived) {
	switch {
	case e.StepWeight == 0, e.Announcement.Phase != wire.PhaseOpen:
	case a.earlyInvitation != nil && a.earlyInvitation.AnnouncementDigest == e.EnvelopeDigest: // invited already
	case e.Retained, a.rowsKnownToCoordinator == 0, a.lastHelloRows != a.rowsKnownToCoordinator,
		a.task.hostHasCheckedTask && a.task.localRows < a.rowsKnownToCoordinator:
		a.helloDue, a.lotteryLost = true, false
	default:
		left := time.Duration(e.Announcement.RoundTimeoutMillis) * time.Millisecond
		a.earlyInvitation, a.earlyInvitationAt = &InvitationReceived{AnnouncementDigest: e.EnvelopeDigest,
			TimeLeft:   left,
			StepWeight: e.StepWeight,
			MustUpload: true,
			Samples:    a.rowsKnownToCoordinator}, now
	}
}

// handlePositionSaved takes whether the place of an announcement is saved. Updates wait for it, since none may be
// offered for a round that a restart would forget; while it cannot be saved the agent declines. Later it may be saved
// after all.
func (a *Machine) handlePositionSaved(now time.Time, e PositionSaved) {
	if e.Position != a.obeyedPosition {
		return // a later one is being saved
	}
	before := a.unfitReason()
	if a.positionUnsaved = e.Failed; !e.Failed {
		a.savedPosition = e.Position
	}
	switch w := a.currentWork; {
	case w == nil:
	case !e.Failed:
		a.offer()
	case w.state <= workHolding && !a.mayOffer():
		a.decline(now, wire.DeclineStorage)
	}
	a.helloDue = a.helloDue || a.unfitReason() != before
}

// follow makes an announcement the one that the agent works for.
func (a *Machine) follow(now time.Time, e AnnouncementReceived) {
	// A coordinator of another epoch knows of its agents what they told the one before it at most.
	anew := a.currentAnnouncement == nil || a.currentAnnouncement.Position.Run != e.Position.Run ||
		a.currentAnnouncement.Position.Epoch != e.Position.Epoch
	// Whoever has missed a whole round may count as gone since: the link behind the broker was cut, say.
	missed := a.currentAnnouncement != nil && e.Position.Round > a.currentAnnouncement.Position.Round+1
	a.obeyedPosition, a.obeyedDigest, a.currentAnnouncement, a.correctiveHelloAt = e.Position, e.EnvelopeDigest, &e,
		time.Time{}
	a.report(AnnouncementObeyed{e.Position})
	a.emit(FollowAnnouncement{e.Position})
	if err := e.Announcement.Extra.CheckSupported(); err != nil {
		a.report(MessageUnsupported{wire.TypeAnnouncement, err})
	}
	if a.earlyInvitation != nil && a.earlyInvitation.AnnouncementDigest != e.EnvelopeDigest {
		a.earlyInvitation = nil // of a round that has gone by
	}
	a.noteNotSelected(&e)
	hadPart := a.currentWork != nil
	a.leaveOldWork()
	a.disconnectState.hadWorkSinceLastDraw = a.disconnectState.hadWorkSinceLastDraw || hadPart && a.currentWork == nil
	a.resumeSaved(now)
	a.offerAgain()
	if anew || missed || e.Announcement.Phase == wire.PhaseGathering {
		a.helloDue = true
		a.drawLottery(&e)
	}
	again := a.task.hostHasCheckedTask && a.task.unfitReason == wire.DeclineFetch // perhaps it can be had now
	if t := &e.Announcement.Task; t.Present() && (t.Hash != a.task.hash || again) {
		a.task = taskState{hash: t.Hash}
		a.emit(PrepareTask{*t})
	}
	a.checkRoundBudget()
	a.replayEarlyInvitation(now)
}

// scheduleCorrectiveHello owes the coordinator a hello that names the place which the agent obeys, since one that
// announces an older place does not know it: its state folder is an older copy, say. Replays cost no more than a hello
// a minute.
func (a *Machine) scheduleCorrectiveHello(now time.Time, older *wire.Announcement) {
	if !a.correctiveHelloAt.IsZero() || now.Before(a.noCorrectiveHelloBefore) {
		return
	}
	if a.noCorrectiveHelloBefore = now.Add(helloMost); !a.winsLottery(older.Respond.AnswerThreshold) {
		return
	}
	within := time.Duration(older.HelloSpreadMillis) * time.Millisecond
	a.correctiveHelloAt = now.Add(a.jitter(within))
}

// sendCorrectiveHello says that hello when it is due, also without the announcement that the agent obeys: a process
// that has just started may know nothing of it but its place.
func (a *Machine) sendCorrectiveHello(now time.Time) {
	if a.linkUp && !a.correctiveHelloAt.IsZero() && !now.Before(a.correctiveHelloAt) {
		a.correctiveHelloAt = time.Time{}
		a.sayHello()
	}
}

// isCurrentRound reports whether the current announcement is about the round of
// the work: a new attempt changes nothing for an update's identity.
func (a *Machine) isCurrentRound(run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	c := a.currentAnnouncement
	return c.Position.Run == run && c.Position.Round == round && c.Announcement.BaseModel.Hash == base &&
		c.Announcement.Phase == wire.PhaseOpen
}

// isUpdateObsolete reports whether the coordinator needs an update of a round no more: the round is folded, or
// abandoned, or the coordinator has gone back behind it, or it is of another run. Nothing else ends an update, not an
// acceptance and no time: the coordinator that has accepted it may have lost it.
func (a *Machine) isUpdateObsolete(epoch wire.Epoch, run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	o, ann := a.currentAnnouncement.Position, &a.currentAnnouncement.Announcement
	return o.Run != run || ann.LastEndedRound >= round || o.Round > round || o.Epoch > epoch && o.Round < round ||
		o.Round == round && ann.Phase == wire.PhaseOpen && ann.BaseModel.Hash != base
}

// leaveOldWork ends the work of a round that is over.
func (a *Machine) leaveOldWork() {
	w := a.currentWork
	if w == nil || !a.isUpdateObsolete(w.epoch, w.run, w.round, w.base) {
		return
	}
	a.currentWork = nil
	a.giveUpAwaitedOutcome()
	if w.mustUpload() || w.updateOffered { // another attempt may have chosen other uploaders
		a.requestOutcome(w.run, w.round, w.update)
	}
	switch {
	case w.state == workSubmitting && w.linkWasLost && a.currentAnnouncement.Position.Run == w.run:
		a.workAwaitingOutcome = w // offered again with the link, it is answered
	case w.state == workHolding && !w.mustUpload() && !w.updateOffered:
		a.reportWorkEnd(w, WorkEnded{Result: WorkMixed})
	default:
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
	a.emit(ReleaseRound{})
}

// requestOutcome finds out what became of an update of the announced run.
func (a *Machine) requestOutcome(run wire.RunID, round wire.RoundID, update wire.Digest) {
	if c := a.currentAnnouncement; !update.IsZero() && c.Position.Run == run && c.Announcement.LastEndedRound >= round {
		a.emit(FindUpdateFate{c.Position, round, update, c.Announcement.LastRoundOutcome,
			c.Announcement.LastEndedRound})
	}
}

// giveUpAwaitedOutcome counts the work that went by while the link was down as lost.
func (a *Machine) giveUpAwaitedOutcome() {
	if w := a.workAwaitingOutcome; w != nil {
		a.workAwaitingOutcome = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
}

// offerAgain has an update on its way offered to a coordinator that has announced
// the round anew: it has restarted, and what it lent is void.
func (a *Machine) offerAgain() {
	if w := a.currentWork; w != nil && w.state == workSubmitting && a.isCurrentRound(w.run, w.round, w.base) {
		w.state = workHolding
		a.offer()
	}
}

// resumeSaved takes up an update that an earlier process left on disk, or
// throws it away if its round is over.
func (a *Machine) resumeSaved(now time.Time) {
	s := a.savedUpdate
	switch {
	case s == nil:
		return
	case a.isUpdateObsolete(s.Epoch, s.Run, s.Round, s.BaseModelDigest):
		a.savedUpdate = nil
		a.requestOutcome(s.Run, s.Round, s.UpdateDigest)
		a.emit(ReleaseRound{})
		return
	case !a.isCurrentRound(s.Run, s.Round, s.BaseModelDigest):
		return // it is not announced yet
	}
	a.savedUpdate = nil
	within := time.Duration(a.currentAnnouncement.Announcement.RoundTimeoutMillis) * time.Millisecond
	a.currentWork = &roundWork{
		epoch: s.Epoch, run: s.Run, round: s.Round, base: s.BaseModelDigest,
		kind:  a.currentAnnouncement.Announcement.Kind,
		state: workSubmitting, deadline: now.Add(within), update: s.UpdateDigest,
	}
}

// handleTaskChecked takes the host's word on whether the local data fit the task, and how many rows there are by now.
func (a *Machine) handleTaskChecked(now time.Time, e TaskChecked) {
	if e.Task != a.task.hash {
		return
	}
	a.task.hostHasCheckedTask, a.task.unfitReason, a.task.localRows, a.task.statisticsUpdateBytes = true,
		e.UnfitReason, e.Samples,
		e.StatisticsUpdateBytes
	a.report(TaskPrepared{UnfitReason: e.UnfitReason, Samples: e.Samples})
	a.checkRoundBudget()
	a.helloDue = true // the coordinator may count on an unfit agent, or have given up a slow one
	a.replayEarlyInvitation(now)
}
