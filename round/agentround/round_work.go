package agentround

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleInvitation starts the work of a round, or repeats the answer to an invitation
// that was answered before.
func (a *Machine) handleInvitation(now time.Time, e InvitationReceived) {
	c := a.currentAnnouncement
	if c == nil || e.AnnouncementDigest != c.EnvelopeDigest || !a.task.hostHasCheckedTask {
		// the latest one only: the coordinator repeats it anyway
		a.pendingInvitation, a.pendingInvitationSince = &e, now
		return
	}
	if e.KnownRowCount > 0 {
		a.rowsKnownToCoordinator = e.KnownRowCount
	}
	unfit := a.unfitReason()
	if unfit == 0 { // else the coordinator has not heard it yet
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
	if w := a.currentWork; w != nil { // of this round: endObsoleteWork has seen to that
		w.invitation, w.deadline = e, now.Add(e.TimeLeft) // a new attempt has more time
		a.offerUpdate()                                   // perhaps it is drawn in the place of another
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
	} else { // nothing of it may come that implies it
		a.emitEffect(SendJoined{c.Position, e.AnnouncementDigest})
	}
	a.reportEvent(WorkStarted{Round: a.currentWork.round, Kind: a.currentWork.kind, TimeLeft: e.TimeLeft})
	if c.Announcement.Kind == wire.KindStatistics {
		a.startTraining()
	} else {
		a.emitEffect(FetchModel{c.Announcement.BaseModel})
	}
}

// repeatInvitationAnswer answers an invitation to work that is under way or over. Being
// asked again for an update that was accepted means that it was lost there.
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

// handlePendingInvitation answers an invitation that came too early to be answered.
func (a *Machine) handlePendingInvitation(now time.Time) {
	if e := a.pendingInvitation; e != nil && e.AnnouncementDigest == a.currentAnnouncement.EnvelopeDigest {
		e.TimeLeft -= now.Sub(a.pendingInvitationSince)
		a.pendingInvitation = nil
		a.handleInvitation(now, *e)
	}
}

func (a *Machine) startTraining() {
	w := a.currentWork
	a.savedUpdate = nil // its file is this round's from now on
	w.state = workTraining
	a.emitEffect(StartTraining{Position: a.currentAnnouncement.Position,
		Announcement: a.currentAnnouncement.Announcement,
		StepWeight:   w.invitation.StepWeight,
		MustUpload:   w.invitation.MustUpload, MixingBlockRound: w.invitation.MixingBlockRound,
		MixingPeers: w.invitation.MixingPeers, Deadline: w.deadline,
		MaxRows: w.invitation.KnownRowCount})
}

// Waits of an agent's word on its round: joined comes this long after the work begins, unless an offer, which implies
// it, comes first; declined is said again until it is answered.
const (
	joinedMessageDelay        = time.Second
	firstDeclineRetryInterval = 5 * time.Second
	maxDeclineRetryInterval   = time.Minute
)

// sendDueAnswer says what is due.
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

// handleRoundStanding takes the agent's place in the round, and the answer to declined.
func (a *Machine) handleRoundStanding(e RoundStandingReceived) {
	if a.currentAnnouncement != nil && a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		a.disconnectState.notSelectedForRound = e.Standing == wire.StatusNotSelected
	}
	if w := a.currentWork; w != nil && w.state == workDeclinedOrRefused &&
		a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		w.nextAnswerAt = time.Time{}
	}
}

// declineRound ends the agent's part in the round.
func (a *Machine) declineRound(now time.Time, reason wire.DeclineReason) {
	w := a.currentWork
	w.state, w.declineReason = workDeclinedOrRefused, reason
	w.nextAnswerAt,
		w.declineRetryInterval = now.Add(firstDeclineRetryInterval*3/4+a.jitter(firstDeclineRetryInterval/2)),
		2*firstDeclineRetryInterval
	a.emitEffect(SendDeclined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest, reason})
	a.savedUpdate = nil // its file goes, too
	a.emitEffect(EndRoundWork{})
	a.reportWorkEnd(w, WorkEnded{Result: WorkDeclined, DeclineReason: reason})
}

// reportWorkEnd reports how work ended. Later answers, such as a second
// acceptance, is not told.
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

// handleTrainingEnded offers the update if it is asked for.
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

// mayOfferUpdate reports whether a restart would know of the round that is announced, by whatever attempt.
func (a *Machine) mayOfferUpdate() bool {
	round := a.obeyedPosition
	round.Attempt, round.Phase = 0, 0
	return a.savedPosition.Compare(round) >= 0
}

// offerUpdate sends the update if it is asked for, and a restart would know of its round.
func (a *Machine) offerUpdate() {
	if w := a.currentWork; w.state == workHoldingUpdate && w.mustUpload() && a.mayOfferUpdate() {
		if a.task.localRowCount < w.invitation.KnownRowCount && a.lastHelloRows != a.task.localRowCount {
			a.sendHello() // else an update of fewer rows would be refused
		}
		w.state, w.updateOffered, w.nextAnswerAt = workSubmitting, true, time.Time{}
		a.emitEffect(SubmitUpdate{w.run, w.round, w.updateDigest,
			a.currentAnnouncement.Announcement.InitialCreditChunks})
	}
}

// mustUpload reports whether the agent is to send its update. An update of an earlier process was to be sent.
func (w *roundWork) mustUpload() bool {
	return w.invitation.MustUpload || w.invitation.AnnouncementDigest.IsZero()
}

// matchesUpdate reports whether an answer is about this work's update: two rounds may
// have updates of equal content.
func (w *roundWork) matchesUpdate(run wire.RunID, round wire.RoundID, update wire.Digest) bool {
	return w.run == run && w.round == round && w.updateDigest == update
}

// handleUpdateAccepted believes that the running coordinator holds the update. It is kept here until the round is over:
// that coordinator may fall.
func (a *Machine) handleUpdateAccepted(now time.Time, e UpdateAcceptanceReceived) {
	if w := a.workAwaitingFate; w != nil && w.matchesUpdate(e.Run, e.Round, e.UpdateDigest) {
		a.workAwaitingFate = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkAccepted})
		return
	}
	w := a.currentWork
	if c := a.currentAnnouncement; w == nil && c != nil && c.Position.Run == e.Run && c.Position.Round == e.Round {
		a.endHelloRetries(now) // its update outlived its memory of it
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
