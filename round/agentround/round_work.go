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
		a.earlyInvitation, a.earlyInvitationAt = &e, now // the latest one only: the coordinator repeats it anyway
		return
	}
	if e.Samples > 0 {
		a.rowsKnownToCoordinator = e.Samples
	}
	unfit := a.unfitReason()
	if unfit == 0 { // else the coordinator has not heard it yet
		a.handleCoordinatorAnswer(now, e.AnnouncementDigest)
	}
	if c.Announcement.Phase != wire.PhaseOpen {
		return
	}
	for _, x := range e.EndedEdges {
		if !slices.Contains(a.endedEdges, x) {
			a.report(EdgeLost{Round: c.Position.Round, Neighbor: x.ID, Reason: x.Reason})
		}
	}
	if len(e.EndedEdges) == 0 && len(a.endedEdges) > 0 {
		a.report(EdgesRestored{c.Position.Round})
	}
	a.endedEdges = e.EndedEdges
	if w := a.currentWork; w != nil { // of this round: leaveOldWork has seen to that
		w.invitation, w.deadline = e, now.Add(e.TimeLeft) // a new attempt has more time
		a.offer()                                         // perhaps it is drawn in the place of another
		a.repeatInvitationAnswer(c.Position, w)
		return
	}
	a.currentWork = &roundWork{
		epoch: c.Position.Epoch, run: c.Position.Run, round: c.Position.Round, base: c.Announcement.BaseModel.Hash,
		kind:       c.Announcement.Kind,
		invitation: e, deadline: now.Add(e.TimeLeft),
	}
	switch {
	case unfit != 0:
		a.decline(now, unfit)
		return
	case e.UnsupportedErr != nil:
		a.report(MessageUnsupported{wire.TypeInvitation, e.UnsupportedErr})
		a.decline(now, wire.DeclineUnsupported)
		return
	case e.TimeLeft <= 0:
		a.decline(now, wire.DeclineNoTime)
		return
	}
	if e.MustUpload {
		a.currentWork.nextAnswerAt = now.Add(joinedAfter)
	} else { // nothing of it may come that implies it
		a.emit(SendJoined{c.Position, e.AnnouncementDigest})
	}
	a.report(WorkStarted{Round: a.currentWork.round, Kind: a.currentWork.kind, Left: e.TimeLeft})
	if c.Announcement.Kind == wire.KindStatistics {
		a.train()
	} else {
		a.emit(FetchModel{c.Announcement.BaseModel})
	}
}

// repeatInvitationAnswer answers an invitation to work that is under way or over. Being
// asked again for an update that was accepted means that it was lost there.
func (a *Machine) repeatInvitationAnswer(order wire.AnnouncementPosition, w *roundWork) {
	if w.state == workOut {
		a.emit(SendDeclined{order, w.invitation.AnnouncementDigest, w.declineReason})
		return
	}
	w.nextAnswerAt = time.Time{}
	a.emit(SendJoined{order, w.invitation.AnnouncementDigest})
	if w.state == workAccepted {
		w.state = workHolding
		a.offer()
	}
}

// replayEarlyInvitation answers an invitation that came too early to be answered.
func (a *Machine) replayEarlyInvitation(now time.Time) {
	if e := a.earlyInvitation; e != nil && e.AnnouncementDigest == a.currentAnnouncement.EnvelopeDigest {
		e.TimeLeft -= now.Sub(a.earlyInvitationAt)
		a.earlyInvitation = nil
		a.handleInvitation(now, *e)
	}
}

func (a *Machine) train() {
	w := a.currentWork
	a.savedUpdate = nil // its file is this round's from now on
	w.state = workTraining
	a.emit(Train{Position: a.currentAnnouncement.Position, Announcement: a.currentAnnouncement.Announcement,
		StepWeight: w.invitation.StepWeight,
		MustUpload: w.invitation.MustUpload, EdgeBlockRound: w.invitation.EdgeBlockRound,
		MixingPeers: w.invitation.MixingPeers, Deadline: w.deadline,
		Samples: w.invitation.Samples})
}

// Waits of an agent's word on its round: joined comes this long after the work begins, unless an offer, which implies
// it, comes first; declined is said again until it is answered.
const (
	joinedAfter   = time.Second
	declinedFirst = 5 * time.Second
	declinedMost  = time.Minute
)

// sendDueAnswer says what is due.
func (a *Machine) sendDueAnswer(now time.Time) {
	w := a.currentWork
	if w == nil || !a.linkUp || w.nextAnswerAt.IsZero() || now.Before(w.nextAnswerAt) {
		return
	}
	if w.state != workOut {
		w.nextAnswerAt = time.Time{}
		a.emit(SendJoined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest})
		return
	}
	a.emit(SendDeclined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest, w.declineReason})
	w.nextAnswerAt, w.answerWait = now.Add(w.answerWait*3/4+a.jitter(w.answerWait/2)), min(2*w.answerWait, declinedMost)
}

// handleStanding takes the agent's place in the round, and the answer to declined.
func (a *Machine) handleStanding(e RoundStandingReceived) {
	if a.currentAnnouncement != nil && a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		a.disconnectState.notSelected = e.Standing == wire.PlaceNotSelected
	}
	if w := a.currentWork; w != nil && w.state == workOut &&
		a.currentAnnouncement.EnvelopeDigest == e.AnnouncementDigest {
		w.nextAnswerAt = time.Time{}
	}
}

// decline ends the agent's part in the round.
func (a *Machine) decline(now time.Time, reason wire.DeclineReason) {
	w := a.currentWork
	w.state, w.declineReason = workOut, reason
	w.nextAnswerAt, w.answerWait = now.Add(declinedFirst*3/4+a.jitter(declinedFirst/2)), 2*declinedFirst
	a.emit(SendDeclined{a.currentAnnouncement.Position, a.currentAnnouncement.EnvelopeDigest, reason})
	a.savedUpdate = nil // its file goes, too
	a.emit(ReleaseRound{})
	a.reportWorkEnd(w, WorkEnded{Result: WorkDeclined, DeclineReason: reason})
}

// reportWorkEnd reports how work ended. Later answers, such as a second
// acceptance, is not told.
func (a *Machine) reportWorkEnd(w *roundWork, f WorkEnded) {
	if !w.endReported {
		w.endReported, f.Round, f.Kind = true, w.round, w.kind
		a.report(f)
	}
}

func (a *Machine) handleModelFetched(now time.Time, e ModelFetched) {
	if w := a.currentWork; w == nil || w.state != workFetching || w.base != e.Base {
		return
	}
	if e.Failed {
		a.decline(now, wire.DeclineFetch)
		return
	}
	a.train()
}

// handleTrained offers the update if it is asked for.
func (a *Machine) handleTrained(now time.Time, e Trained) {
	w := a.currentWork
	if w == nil || w.state != workTraining || w.run != e.Run || w.round != e.Round {
		return
	}
	if e.FailureReason != 0 {
		a.decline(now, e.FailureReason)
		return
	}
	w.state, w.update = workHolding, e.UpdateDigest
	if e.HasEdgeReport && !w.mustUpload() {
		a.sayHello()
	}
	a.offer()
}

// mayOffer reports whether a restart would know of the round that is announced, by whatever attempt.
func (a *Machine) mayOffer() bool {
	round := a.obeyedPosition
	round.Attempt, round.Phase = 0, 0
	return a.savedPosition.Compare(round) >= 0
}

// offer sends the update if it is asked for, and a restart would know of its round.
func (a *Machine) offer() {
	if w := a.currentWork; w.state == workHolding && w.mustUpload() && a.mayOffer() {
		if a.task.localRows < w.invitation.Samples && a.lastHelloRows != a.task.localRows {
			a.sayHello() // else an update of fewer rows would be refused
		}
		w.state, w.updateOffered, w.nextAnswerAt = workSubmitting, true, time.Time{}
		a.emit(SubmitUpdate{w.run, w.round, w.update, a.currentAnnouncement.Announcement.InitialCreditChunks})
	}
}

// mustUpload reports whether the agent is to send its update. An update of an earlier process was to be sent.
func (w *roundWork) mustUpload() bool {
	return w.invitation.MustUpload || w.invitation.AnnouncementDigest.IsZero()
}

// matches reports whether an answer is about this work's update: two rounds may
// have updates of equal content.
func (w *roundWork) matches(run wire.RunID, round wire.RoundID, update wire.Digest) bool {
	return w.run == run && w.round == round && w.update == update
}

// handleAccepted believes that the running coordinator holds the update. It is kept here until the round is over: that
// coordinator may fall.
func (a *Machine) handleAccepted(now time.Time, e AcceptanceReceived) {
	if w := a.workAwaitingOutcome; w != nil && w.matches(e.Run, e.Round, e.Update) {
		a.workAwaitingOutcome = nil
		a.reportWorkEnd(w, WorkEnded{Result: WorkAccepted})
		return
	}
	w := a.currentWork
	if c := a.currentAnnouncement; w == nil && c != nil && c.Position.Run == e.Run && c.Position.Round == e.Round {
		a.noteHelloAnswered(now) // its update outlived its memory of it
	}
	if w == nil || !w.matches(e.Run, e.Round, e.Update) {
		return
	}
	a.noteHelloAnswered(now)
	if w.state == workSubmitting {
		w.state = workAccepted
		a.reportWorkEnd(w, WorkEnded{Result: WorkAccepted})
	}
}

func (a *Machine) handleRefused(now time.Time, e RefusalReceived) {
	w := a.currentWork
	if p := a.workAwaitingOutcome; p != nil && p.matches(e.Run, e.Round, e.Update) {
		a.giveUpAwaitedOutcome()
		return
	}
	if w == nil || !w.matches(e.Run, e.Round, e.Update) || w.state != workSubmitting {
		return
	}
	a.noteHelloAnswered(now)
	w.state, w.declineReason, w.nextAnswerAt = workOut, wire.DeclineRefused, time.Time{}
	a.emit(ReleaseRound{RefusalReason: e.Reason})
	a.reportWorkEnd(w, WorkEnded{Result: WorkRefused, RefusalReason: e.Reason})
}
