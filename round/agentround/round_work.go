package agentround

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleInvitation starts the agent's work in a round, or answers a repeated invitation.
func (a *Machine) handleInvitation(now time.Time, e InvitationReceived) {
	c := a.currentAnnouncement
	if c == nil || e.AnnouncementDigest != c.EnvelopeDigest || !a.task.hostHasCheckedTask {
		// Keep only the newest invitation, since the coordinator repeats its invitations.
		a.pendingInvitation, a.pendingInvitationSince = &e, now
		return
	}
	if e.KnownRowCount > 0 {
		a.rowsKnownToCoordinator = e.KnownRowCount
	}
	unfit := a.unfitReason()
	// Stop repeating the hello message only if the agent can participate. Otherwise the hello message must report to
	// the coordinator why the agent cannot.
	if unfit == 0 {
		a.endHelloRetriesIfCurrent(now, e.AnnouncementDigest)
	}
	if c.Announcement.Phase != wire.PhaseOpen {
		return
	}
	for _, x := range e.EndedEdges {
		if !slices.Contains(a.endedEdges, x) {
			a.reportEvent(NeighborEdgeEnded{Round: c.Position.Round, Neighbor: x.NeighborID, Reason: x.Reason})
		}
	}
	if len(e.EndedEdges) == 0 && len(a.endedEdges) > 0 {
		a.reportEvent(NeighborEdgesRestored{c.Position.Round})
	}
	a.endedEdges = e.EndedEdges
	// This is work in the invited round, since endObsoleteWork has removed work in earlier rounds.
	if w := a.currentWork; w != nil {
		w.invitation, w.deadline = e, now.Add(e.TimeLeft) // A new attempt of the round has a new deadline.
		// Offer the update, since this agent may now have been drawn to send it in place of another agent.
		a.offerUpdate()
		a.repeatInvitationAnswer(c.Position, w)
		return
	}
	a.currentWork = &roundWork{
		epoch: c.Position.Epoch, run: c.Position.Run, round: c.Position.Round,
		baseModelDigest: c.Announcement.BaseModel.Hash,
		kind:            c.Announcement.Kind,
		invitation:      e, deadline: now.Add(e.TimeLeft),
	}
	switch {
	case unfit != 0:
		a.declineRound(now, unfit)
		return
	case e.UnsupportedErr != nil:
		a.reportEvent(MessageUnsupported{wire.TypeInvitation, e.UnsupportedErr})
		a.declineRound(now, wire.DeclineUnsupported)
		return
	case e.TimeLeft <= 0:
		a.declineRound(now, wire.DeclineNoTime)
		return
	}
	if e.MustUpload {
		a.currentWork.nextAnswerAt = now.Add(joinedMessageDelay)
	} else { // The agent will send no update, so report the participation now.
		a.emitEffect(SendJoined{c.Position, e.AnnouncementDigest})
	}
	a.reportEvent(WorkStarted{Round: a.currentWork.round, Kind: a.currentWork.kind, TimeLeft: e.TimeLeft})
	if c.Announcement.Kind == wire.KindStatistics {
		a.startTraining()
	} else {
		a.emitEffect(FetchModel{c.Announcement.BaseModel})
	}
}

// repeatInvitationAnswer answers an invitation to a round in which the agent already works. If the coordinator requests
// an update that it had accepted before, the coordinator has lost the update, so the agent offers it again.
func (a *Machine) repeatInvitationAnswer(order wire.AnnouncementPosition, w *roundWork) {
	if w.state == workDeclinedOrRefused {
		a.emitEffect(SendDeclined{order, w.invitation.AnnouncementDigest, w.declineReason})
		return
	}
	w.nextAnswerAt = time.Time{}
	a.emitEffect(SendJoined{order, w.invitation.AnnouncementDigest})
	if w.state == workAccepted {
		w.state = workHoldingUpdate
		a.offerUpdate()
	}
}

// handlePendingInvitation answers an invitation that arrived before the agent was ready.
func (a *Machine) handlePendingInvitation(now time.Time) {
	if e := a.pendingInvitation; e != nil && e.AnnouncementDigest == a.currentAnnouncement.EnvelopeDigest {
		e.TimeLeft -= now.Sub(a.pendingInvitationSince)
		a.pendingInvitation = nil
		a.handleInvitation(now, *e)
	}
}

func (a *Machine) startTraining() {
	w := a.currentWork
	a.savedUpdate = nil // The saved file now belongs to the work in this round.
	w.state = workTraining
	a.emitEffect(StartTraining{Position: a.currentAnnouncement.Position,
		Announcement: a.currentAnnouncement.Announcement,
		StepWeight:   w.invitation.StepWeight,
		MustUpload:   w.invitation.MustUpload, MixingBlockRound: w.invitation.MixingBlockRound,
		MixingPeers: w.invitation.MixingPeers, Deadline: w.deadline,
		MaxRows: w.invitation.KnownRowCount})
}

// Delays of joined and declined messages. A joined message is skipped if the agent offers its update within the delay.
// A declined message is repeated until the coordinator answers.
const (
	joinedMessageDelay        = time.Second
	firstDeclineRetryInterval = 5 * time.Second
	maxDeclineRetryInterval   = time.Minute
)

// sendDueAnswer sends a joined or declined message if it is due.
func (a *Machine) sendDueAnswer(now time.Time) {
	w := a.currentWork
	if w == nil || !a.linkUp || w.nextAnswerAt.IsZero() || now.Before(w.nextAnswerAt) {
		return
	}
	if w.state != workDeclinedOrRefused {
		w.nextAnswerAt = time.Time{}
		a.emitEffect(SendJoined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest})
		return
	}
	a.emitEffect(SendDeclined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest, w.declineReason})
	w.nextAnswerAt, w.declineRetryInterval = now.Add(w.declineRetryInterval*3/4+a.jitter(w.declineRetryInterval/2)),
		min(2*w.declineRetryInterval, maxDeclineRetryInterval)
}

// handleRoundStanding processes the coordinator's answer to a hello message or to a declined message.
func (a *Machine) handleRoundStanding(e RoundStandingReceived) {
	if a.currentAnnouncement != nil && a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		a.disconnectState.notSelectedForRound = e.Standing == wire.StatusNotSelected
	}
	if w := a.currentWork; w != nil && w.state == workDeclinedOrRefused &&
		a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		w.nextAnswerAt = time.Time{}
	}
}

// declineRound declines the round and ends the agent's work in it.
func (a *Machine) declineRound(now time.Time, reason wire.DeclineReason) {
	w := a.currentWork
	w.state, w.declineReason = workDeclinedOrRefused, reason
	w.nextAnswerAt,
		w.declineRetryInterval = now.Add(firstDeclineRetryInterval*3/4+a.jitter(firstDeclineRetryInterval/2)),
		2*firstDeclineRetryInterval
	a.emitEffect(SendDeclined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest, reason})
	a.savedUpdate = nil // EndRoundWork deletes the file of this update.
	a.emitEffect(EndRoundWork{})
	a.reportWorkEnd(w, WorkEnded{Result: WorkDeclined, DeclineReason: reason})
}

// reportWorkEnd reports the end of the work in a round, but only once. Later answers, such as a second acceptance, are
// ignored.
func (a *Machine) reportWorkEnd(w *roundWork, f WorkEnded) {
	if !w.endReported {
		w.endReported, f.Round, f.Kind = true, w.round, w.kind
		a.reportEvent(f)
	}
}

func (a *Machine) handleModelFetched(now time.Time, e ModelFetched) {
	if w := a.currentWork; w == nil || w.state != workFetching || w.baseModelDigest != e.BaseModelDigest {
		return
	}
	if e.FetchFailed {
		a.declineRound(now, wire.DeclineFetchFailed)
		return
	}
	a.startTraining()
}

// handleTrainingEnded processes the end of the training and offers the update if the coordinator requested one.
func (a *Machine) handleTrainingEnded(now time.Time, e TrainingEnded) {
	w := a.currentWork
	if w == nil || w.state != workTraining || w.run != e.Run || w.round != e.Round {
		return
	}
	if e.FailureReason != 0 {
		a.declineRound(now, e.FailureReason)
		return
	}
	w.state, w.updateDigest = workHoldingUpdate, e.UpdateDigest
	if e.HasEdgeReport && !w.mustUpload() {
		a.sendHello()
	}
	a.offerUpdate()
}

// mayOfferUpdate reports whether the position of the announced round, in any attempt, is saved to disk.
func (a *Machine) mayOfferUpdate() bool {
	round := a.obeyedPosition
	round.Attempt, round.Phase = 0, 0
	return a.savedPosition.Compare(round) >= 0
}

// offerUpdate submits the update if the coordinator requested one and the position of the round is saved to disk.
func (a *Machine) offerUpdate() {
	if w := a.currentWork; w.state == workHoldingUpdate && w.mustUpload() && a.mayOfferUpdate() {
		if a.task.localRowCount < w.invitation.KnownRowCount && a.lastHelloRows != a.task.localRowCount {
			// Send the new number of rows, since the coordinator would otherwise refuse an update from fewer rows.
			a.sendHello()
		}
		w.state, w.updateOffered, w.nextAnswerAt = workSubmitting, true, time.Time{}
		a.emitEffect(SubmitUpdate{w.run, w.round, w.updateDigest,
			a.currentAnnouncement.Announcement.InitialCreditChunks})
	}
}

// mustUpload reports whether the agent must send its update. An update saved before a restart must always be sent.
func (w *roundWork) mustUpload() bool {
	return w.invitation.MustUpload || w.invitation.AnnouncementDigest.IsZero()
}

// matchesUpdate reports whether an answer of the coordinator refers to this work's update. It compares both the digest
// and the round, since the updates of two rounds may be equal.
func (w *roundWork) matchesUpdate(run wire.RunID, round wire.RoundID, update wire.Digest) bool {
	return w.run == run && w.round == round && w.updateDigest == update
}

// handleUpdateAccepted records the acceptance of the update. The agent keeps the update until the round is over, since
// the coordinator may still lose the update.
func (a *Machine) handleUpdateAccepted(now time.Time, e UpdateAcceptanceReceived) {
	if w := a.workAwaitingFate; w != nil && w.matchesUpdate(e.Run, e.Round, e.UpdateDigest) {
		a.workAwaitingFate = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkAccepted})
		return
	}
	w := a.currentWork
	if c := a.currentAnnouncement; w == nil && c != nil && c.Position.Run == e.Run && c.Position.Round == e.Round {
		// The answer shows that the coordinator has received the hello message, although the agent no longer has this
		// update.
		a.endHelloRetries(now)
	}
	if w == nil || !w.matchesUpdate(e.Run, e.Round, e.UpdateDigest) {
		return
	}
	a.endHelloRetries(now)
	if w.state == workSubmitting {
		w.state = workAccepted
		a.reportWorkEnd(w, WorkEnded{Result: WorkAccepted})
	}
}

func (a *Machine) handleUpdateRefused(now time.Time, e UpdateRefusalReceived) {
	w := a.currentWork
	if p := a.workAwaitingFate; p != nil && p.matchesUpdate(e.Run, e.Round, e.UpdateDigest) {
		a.giveUpAwaitedFate()
		return
	}
	if w == nil || !w.matchesUpdate(e.Run, e.Round, e.UpdateDigest) || w.state != workSubmitting {
		return
	}
	a.endHelloRetries(now)
	w.state, w.declineReason, w.nextAnswerAt = workDeclinedOrRefused, wire.DeclineUpdateRefused, time.Time{}
	a.emitEffect(EndRoundWork{RefusalReason: e.Reason})
	a.reportWorkEnd(w, WorkEnded{Result: WorkRefused, RefusalReason: e.Reason})
}
