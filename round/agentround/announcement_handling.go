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
		a.reportEvent(AnnouncementIgnored{e.Position, IgnoredOlderAnnouncement})
		a.scheduleCorrectiveHello(now, &e.Announcement)
	case order == 0 && e.EnvelopeDigest != a.obeyedAnnouncementDigest:
		a.reportEvent(AnnouncementIgnored{e.Position, IgnoredConflictingAnnouncement})
	case order > 0:
		a.makeInvitationFromSelection(now, &e)
		a.emitEffect(SaveAnnouncementPosition{e.Position, e.EnvelopeDigest}) // beside what follows
		a.followAnnouncement(now, e)
	case a.currentAnnouncement == nil:
		a.makeInvitationFromSelection(now, &e)
		a.followAnnouncement(now, e)
	} // else the broker said it again
}

// makeInvitationFromSelection takes an announcement that names this agent for an invitation, if the broker did not keep
// it: then the round has just begun. Else the agent says hello, and the answer tells how much time is left. So it does
// when it cannot tell of how many rows the coordinator takes an update: the answer says that, too.
func (a *Machine) makeInvitationFromSelection(now time.Time, e *AnnouncementReceived) {
	switch {
	case e.StepWeight == 0, e.Announcement.Phase != wire.PhaseOpen:
	case a.pendingInvitation != nil && a.pendingInvitation.AnnouncementDigest == e.EnvelopeDigest: // invited already
	case e.IsRetained, a.rowsKnownToCoordinator == 0, a.lastHelloRows != a.rowsKnownToCoordinator,
		a.task.hostHasCheckedTask && a.task.localRowCount < a.rowsKnownToCoordinator:
		a.isHelloDue, a.lotteryLost = true, false
	default:
		left := time.Duration(e.Announcement.RoundTimeoutMillis) * time.Millisecond
		a.pendingInvitation, a.pendingInvitationSince = &InvitationReceived{AnnouncementDigest: e.EnvelopeDigest,
			TimeLeft:      left,
			StepWeight:    e.StepWeight,
			MustUpload:    true,
			KnownRowCount: a.rowsKnownToCoordinator}, now
	}
}

// handlePositionSaved takes whether the place of an announcement is saved. Updates wait for it, since none may be
// offered for a round that a restart would forget; while it cannot be saved the agent declines. Later it may be saved
// after all.
func (a *Machine) handlePositionSaved(now time.Time, e AnnouncementPositionSaved) {
	if e.Position != a.obeyedPosition {
		return // a later one is being saved
	}
	before := a.unfitReason()
	if a.positionSaveFailed = e.SaveFailed; !e.SaveFailed {
		a.savedPosition = e.Position
	}
	switch w := a.currentWork; {
	case w == nil:
	case !e.SaveFailed:
		a.offerUpdate()
	case w.state <= workHoldingUpdate && !a.mayOfferUpdate():
		a.declineRound(now, wire.DeclineStorageFailing)
	}
	a.isHelloDue = a.isHelloDue || a.unfitReason() != before
}

// followAnnouncement makes an announcement the one that the agent works for.
func (a *Machine) followAnnouncement(now time.Time, e AnnouncementReceived) {
	// A coordinator of another epoch knows of its agents what they told the one before it at most.
	anew := a.currentAnnouncement == nil || a.currentAnnouncement.Position.Run != e.Position.Run ||
		a.currentAnnouncement.Position.Epoch != e.Position.Epoch
	// Whoever has missed a whole round may count as gone since: the link behind the broker was cut, say.
	missed := a.currentAnnouncement != nil && e.Position.Round > a.currentAnnouncement.Position.Round+1
	a.obeyedPosition, a.obeyedAnnouncementDigest, a.currentAnnouncement, a.correctiveHelloAt = e.Position,
		e.EnvelopeDigest, &e,
		time.Time{}
	a.reportEvent(AnnouncementObeyed{e.Position})
	a.emitEffect(FollowAnnouncement{e.Position})
	if err := e.Announcement.Extra.CheckSupported(); err != nil {
		a.reportEvent(MessageUnsupported{wire.TypeAnnouncement, err})
	}
	if a.pendingInvitation != nil && a.pendingInvitation.AnnouncementDigest != e.EnvelopeDigest {
		a.pendingInvitation = nil // of a round that has gone by
	}
	a.recordNonSelection(&e)
	hadPart := a.currentWork != nil
	a.endObsoleteWork()
	a.disconnectState.hadWorkSinceLastLottery = a.disconnectState.hadWorkSinceLastLottery || hadPart &&
		a.currentWork == nil
	a.resumeSavedUpdate(now)
	a.reofferUpdate()
	if anew || missed || e.Announcement.Phase == wire.PhaseGathering {
		a.isHelloDue = true
		a.drawLottery(&e)
	}
	again := a.task.hostHasCheckedTask && a.task.unfitReason == wire.DeclineFetchFailed // perhaps it can be had now
	if t := &e.Announcement.Task; t.IsSet() && (t.Hash != a.task.taskDigest || again) {
		a.task = taskState{taskDigest: t.Hash}
		a.emitEffect(PrepareTask{*t})
	}
	a.reportIfUplinkBudgetTooSmall()
	a.handlePendingInvitation(now)
}

// scheduleCorrectiveHello owes the coordinator a hello that names the place which the agent obeys, since one that
// announces an older place does not know it: its state folder is an older copy, say. Replays cost no more than a hello
// a minute.
func (a *Machine) scheduleCorrectiveHello(now time.Time, older *wire.Announcement) {
	if !a.correctiveHelloAt.IsZero() || now.Before(a.noCorrectiveHelloBefore) {
		return
	}
	a.noCorrectiveHelloBefore = now.Add(maxHelloRetryInterval)
	if !a.winsLottery(older.ResponsePolicy.AnswerProbability) {
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
		a.sendHello()
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

// endObsoleteWork ends the work of a round that is over.
func (a *Machine) endObsoleteWork() {
	w := a.currentWork
	if w == nil || !a.isUpdateObsolete(w.epoch, w.run, w.round, w.baseModelDigest) {
		return
	}
	a.currentWork = nil
	a.giveUpAwaitedFate()
	if w.mustUpload() || w.updateOffered { // another attempt may have chosen other uploaders
		a.requestUpdateFate(w.run, w.round, w.updateDigest)
	}
	switch {
	case w.state == workSubmitting && w.connectionWasLost && a.currentAnnouncement.Position.Run == w.run:
		a.workAwaitingFate = w // offered again with the link, it is answered
	case w.state == workHoldingUpdate && !w.mustUpload() && !w.updateOffered:
		a.reportWorkEnd(w, WorkEnded{Result: WorkMixedOnly})
	default:
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
	a.emitEffect(EndRoundWork{})
}

// requestUpdateFate finds out what became of an update of the announced run.
func (a *Machine) requestUpdateFate(run wire.RunID, round wire.RoundID, update wire.Digest) {
	if c := a.currentAnnouncement; !update.IsZero() && c.Position.Run == run && c.Announcement.LastEndedRound >= round {
		a.emitEffect(FindUpdateFate{c.Position, round, update, c.Announcement.LastRoundOutcome,
			c.Announcement.LastEndedRound})
	}
}

// giveUpAwaitedFate counts the work that went by while the link was down as lost.
func (a *Machine) giveUpAwaitedFate() {
	if w := a.workAwaitingFate; w != nil {
		a.workAwaitingFate = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
}

// reofferUpdate has an update on its way offered to a coordinator that has announced
// the round anew: it has restarted, and what it lent is void.
func (a *Machine) reofferUpdate() {
	if w := a.currentWork; w != nil && w.state == workSubmitting && a.isCurrentRound(w.run, w.round,
		w.baseModelDigest) {
		w.state = workHoldingUpdate
		a.offerUpdate()
	}
}

// resumeSavedUpdate takes up an update that an earlier process left on disk, or
// throws it away if its round is over.
func (a *Machine) resumeSavedUpdate(now time.Time) {
	s := a.savedUpdate
	switch {
	case s == nil:
		return
	case a.isUpdateObsolete(s.Epoch, s.Run, s.Round, s.BaseModelDigest):
		a.savedUpdate = nil
		a.requestUpdateFate(s.Run, s.Round, s.UpdateDigest)
		a.emitEffect(EndRoundWork{})
		return
	case !a.isCurrentRound(s.Run, s.Round, s.BaseModelDigest):
		return // it is not announced yet
	}
	a.savedUpdate = nil
	within := time.Duration(a.currentAnnouncement.Announcement.RoundTimeoutMillis) * time.Millisecond
	a.currentWork = &roundWork{
		epoch: s.Epoch, run: s.Run, round: s.Round, baseModelDigest: s.BaseModelDigest,
		kind:  a.currentAnnouncement.Announcement.Kind,
		state: workSubmitting, deadline: now.Add(within), updateDigest: s.UpdateDigest,
	}
}

// handleTaskChecked takes the host's word on whether the local data fit the task, and how many rows there are by now.
func (a *Machine) handleTaskChecked(now time.Time, e TaskChecked) {
	if e.TaskDigest != a.task.taskDigest {
		return
	}
	a.task.hostHasCheckedTask, a.task.unfitReason, a.task.localRowCount, a.task.statisticsUpdateBytes = true,
		e.UnfitReason, e.RowCount,
		e.StatisticsUpdateBytes
	a.reportEvent(TaskFitnessChecked{UnfitReason: e.UnfitReason, RowCount: e.RowCount})
	a.reportIfUplinkBudgetTooSmall()
	a.isHelloDue = true // the coordinator may count on an unfit agent, or have given up a slow one
	a.handlePendingInvitation(now)
}
