package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleAnnouncement follows an announcement that is newer than the last announcement that the agent followed. After a
// restart the agent also follows the last announcement again, because the state in memory is lost.
func (a *Machine) handleAnnouncement(now time.Time, e AnnouncementReceived) {
	switch order := e.Position.Compare(a.obeyedPosition); {
	case order < 0:
		a.reportEvent(AnnouncementIgnored{e.Position, IgnoredOlderAnnouncement})
		a.scheduleCorrectiveHello(now, &e.Announcement)
	case order == 0 && e.EnvelopeDigest != a.obeyedAnnouncementDigest:
		a.reportEvent(AnnouncementIgnored{e.Position, IgnoredConflictingAnnouncement})
	case order > 0:
		a.makeInvitationFromSelection(now, &e)
		// The host may write the position to disk concurrently with the effects that follow.
		a.emitEffect(SaveAnnouncementPosition{e.Position, e.EnvelopeDigest})
		a.followAnnouncement(now, e)
	case a.currentAnnouncement == nil:
		a.makeInvitationFromSelection(now, &e)
		a.followAnnouncement(now, e)
	} // Otherwise ignore the announcement, since the broker has only sent it again.
}

// makeInvitationFromSelection treats an announcement that lists this agent as an invitation. If the remaining time is
// unknown because the broker sent its stored copy, or if the expected number of rows is unknown, the agent sends a
// hello.
func (a *Machine) makeInvitationFromSelection(now time.Time, e *AnnouncementReceived) {
	switch {
	case e.StepWeight == 0, e.Announcement.Phase != wire.PhaseOpen:
	// The agent was already invited by this announcement.
	case a.pendingInvitation != nil && a.pendingInvitation.AnnouncementDigest == e.EnvelopeDigest:
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

// handlePositionSaved processes the result of saving an announcement's position. The agent offers an update only after
// the position of the update's round is saved, since a restarted process would otherwise forget the round. If saving
// fails, the agent declines the round.
func (a *Machine) handlePositionSaved(now time.Time, e AnnouncementPositionSaved) {
	if e.Position != a.obeyedPosition {
		return // Ignore the result, since the machine now saves a later position.
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

// followAnnouncement makes e the current announcement, which determines the agent's task and round.
func (a *Machine) followAnnouncement(now time.Time, e AnnouncementReceived) {
	// Send a new hello message, since a coordinator of another epoch or run may not know the agent.
	anew := a.currentAnnouncement == nil || a.currentAnnouncement.Position.Run != e.Position.Run ||
		a.currentAnnouncement.Position.Epoch != e.Position.Epoch
	// An agent that missed a whole round may have been marked as absent by the coordinator. For example, a network
	// connection beyond the agent's own broker may have been interrupted.
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
		a.pendingInvitation = nil // The round of this invitation is over.
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
	// whether to retry a failed download of the task
	again := a.task.hostHasCheckedTask && a.task.unfitReason == wire.DeclineFetchFailed
	if t := &e.Announcement.Task; t.IsSet() && (t.Hash != a.task.taskDigest || again) {
		a.task = taskState{taskDigest: t.Hash}
		a.emitEffect(PrepareTask{*t})
	}
	a.reportIfUplinkBudgetTooSmall()
	a.handlePendingInvitation(now)
}

// scheduleCorrectiveHello schedules a hello message in response to an announcement that is older than the current one.
// The hello message informs a coordinator that may have lost its state of the newer position. The agent sends such a
// hello message at most once per minute.
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

// sendCorrectiveHello sends the hello message that reports the agent's newer announcement position, if that hello
// message is due. No current announcement is required, because an agent that has just started may know only the
// position.
func (a *Machine) sendCorrectiveHello(now time.Time) {
	if a.linkUp && !a.correctiveHelloAt.IsZero() && !now.Before(a.correctiveHelloAt) {
		a.correctiveHelloAt = time.Time{}
		a.sendHello()
	}
}

// isCurrentRound reports whether the current announcement opens the given round with the given base model. It ignores
// the attempt, because an update remains valid when a round is announced again.
func (a *Machine) isCurrentRound(run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	c := a.currentAnnouncement
	return c.Position.Run == run && c.Position.Round == round && c.Announcement.BaseModel.Hash == base &&
		c.Announcement.Phase == wire.PhaseOpen
}

// isUpdateObsolete reports whether the coordinator no longer needs the update of a round: the round has ended, the
// coordinator has returned to an earlier round, or the run has changed. An accepted update does not become obsolete
// before its round ends, since the coordinator may still lose the update.
func (a *Machine) isUpdateObsolete(epoch wire.Epoch, run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	o, ann := a.currentAnnouncement.Position, &a.currentAnnouncement.Announcement
	return o.Run != run || ann.LastEndedRound >= round || o.Round > round || o.Epoch > epoch && o.Round < round ||
		o.Round == round && ann.Phase == wire.PhaseOpen && ann.BaseModel.Hash != base
}

// endObsoleteWork ends the agent's work in a round if the coordinator no longer needs the update.
func (a *Machine) endObsoleteWork() {
	w := a.currentWork
	if w == nil || !a.isUpdateObsolete(w.epoch, w.run, w.round, w.baseModelDigest) {
		return
	}
	a.currentWork = nil
	a.giveUpAwaitedFate()
	// Check updateOffered too: the coordinator may have requested the update only in an earlier attempt of the round.
	if w.mustUpload() || w.updateOffered {
		a.requestUpdateFate(w.run, w.round, w.updateDigest)
	}
	switch {
	case w.state == workSubmitting && w.connectionWasLost && a.currentAnnouncement.Position.Run == w.run:
		// Keep the work: after a reconnection the agent offers the update again and learns whether it was aggregated.
		a.workAwaitingFate = w
	case w.state == workHoldingUpdate && !w.mustUpload() && !w.updateOffered:
		a.reportWorkEnd(w, WorkEnded{Result: WorkMixedOnly})
	default:
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
	a.emitEffect(EndRoundWork{})
}

// requestUpdateFate asks whether an update of the announced run was aggregated.
func (a *Machine) requestUpdateFate(run wire.RunID, round wire.RoundID, update wire.Digest) {
	if c := a.currentAnnouncement; !update.IsZero() && c.Position.Run == run && c.Announcement.LastEndedRound >= round {
		a.emitEffect(FindUpdateFate{c.Position, round, update, c.Announcement.LastRoundOutcome,
			c.Announcement.LastEndedRound})
	}
}

// giveUpAwaitedFate stops waiting for the outcome of an update whose round ended while the connection was down. It
// reports that the round continued without the agent (WorkSuperseded).
func (a *Machine) giveUpAwaitedFate() {
	if w := a.workAwaitingFate; w != nil {
		a.workAwaitingFate = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkSuperseded})
	}
}

// reofferUpdate offers the current update again after the coordinator has restarted and announced the round again. The
// restart has cancelled the earlier permission to send chunks.
func (a *Machine) reofferUpdate() {
	if w := a.currentWork; w != nil && w.state == workSubmitting && a.isCurrentRound(w.run, w.round,
		w.baseModelDigest) {
		w.state = workHoldingUpdate
		a.offerUpdate()
	}
}

// resumeSavedUpdate continues with an update that the agent saved before a restart, or discards the update if its round
// is over.
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
		return // Wait, since the round of the saved update is not announced yet.
	}
	a.savedUpdate = nil
	within := time.Duration(a.currentAnnouncement.Announcement.RoundTimeoutMillis) * time.Millisecond
	a.currentWork = &roundWork{
		epoch: s.Epoch, run: s.Run, round: s.Round, baseModelDigest: s.BaseModelDigest,
		kind:  a.currentAnnouncement.Announcement.Kind,
		state: workSubmitting, deadline: now.Add(within), updateDigest: s.UpdateDigest,
	}
}

// handleTaskChecked processes the result of checking the local data against the task, including the number of rows.
func (a *Machine) handleTaskChecked(now time.Time, e TaskChecked) {
	if e.TaskDigest != a.task.taskDigest {
		return
	}
	a.task.hostHasCheckedTask, a.task.unfitReason, a.task.localRowCount, a.task.statisticsUpdateBytes = true,
		e.UnfitReason, e.RowCount,
		e.StatisticsUpdateBytes
	a.reportEvent(TaskFitnessChecked{UnfitReason: e.UnfitReason, RowCount: e.RowCount})
	a.reportIfUplinkBudgetTooSmall()
	// Send a hello message, since the coordinator does not know the result of this check yet.
	a.isHelloDue = true
	a.handlePendingInvitation(now)
}
