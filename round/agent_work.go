package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// invited starts the work of a round, or repeats the answer to an invitation
// that was answered before.
func (a *Agent) invited(now time.Time, e Invited) {
	c := a.current
	if c == nil || e.Announcement != c.Digest || !a.task.ready {
		a.early, a.earlyAt = &e, now // the latest one only: the coordinator repeats it anyway
		return
	}
	if e.Samples > 0 {
		a.knownRows = e.Samples
	}
	unfit := a.unfit()
	if unfit == 0 { // else the coordinator has not heard it yet
		a.answered(now, e.Announcement)
	}
	if c.Announcement.Phase != wire.PhaseOpen {
		return
	}
	for _, x := range e.Ended {
		if !slices.Contains(a.lost, x) {
			a.report(EdgeLost{Round: c.Order.Round, Neighbor: x.ID, Reason: x.Reason})
		}
	}
	a.lost = e.Ended
	if w := a.work; w != nil { // of this round: leaveOldWork has seen to that
		w.invited, w.deadline = e, now.Add(e.Left) // a new attempt has more time
		a.offer()                                  // perhaps it is drawn in the place of another
		a.repeatAnswer(c.Order, w)
		return
	}
	a.work = &work{
		epoch: c.Order.Epoch, run: c.Order.Run, round: c.Order.Round, base: c.Announcement.Base.Hash,
		kind:    c.Announcement.Kind,
		invited: e, deadline: now.Add(e.Left),
	}
	switch {
	case unfit != 0:
		a.decline(now, unfit)
		return
	case e.Unknown != nil:
		a.report(NotUnderstood{wire.TypeInvitation, e.Unknown})
		a.decline(now, wire.DeclineUnsupported)
		return
	case e.Left <= 0:
		a.decline(now, wire.DeclineNoTime)
		return
	}
	if e.Uploads {
		a.work.sayAt = now.Add(joinedAfter)
	} else { // nothing of it may come that implies it
		a.do(SayJoined{c.Order, e.Announcement})
	}
	a.report(WorkStarted{Round: a.work.round, Kind: a.work.kind, Left: e.Left})
	if c.Announcement.Kind == wire.KindStatistics {
		a.train()
	} else {
		a.do(FetchModel{c.Announcement.Base})
	}
}

// repeatAnswer answers an invitation to work that is under way or over. Being
// asked again for an update that was accepted means that it was lost there.
func (a *Agent) repeatAnswer(order wire.Order, w *work) {
	if w.state == workOut {
		a.do(SayDeclined{order, w.invited.Announcement, w.declined})
		return
	}
	w.sayAt = time.Time{}
	a.do(SayJoined{order, w.invited.Announcement})
	if w.state == workAccepted {
		w.state = workHolding
		a.offer()
	}
}

// replayEarly answers an invitation that came too early to be answered.
func (a *Agent) replayEarly(now time.Time) {
	if e := a.early; e != nil && e.Announcement == a.current.Digest {
		e.Left -= now.Sub(a.earlyAt)
		a.early = nil
		a.invited(now, *e)
	}
}

func (a *Agent) train() {
	w := a.work
	a.saved = nil // its file is this round's from now on
	w.state = workTraining
	a.do(Train{Order: a.current.Order, Announcement: a.current.Announcement, Weight: w.invited.Weight,
		Uploads: w.invited.Uploads, Block: w.invited.Block, Peers: w.invited.Peers, Deadline: w.deadline,
		Samples: w.invited.Samples})
}

// Waits of an agent's word on its round: joined comes this long after the work begins, unless an offer, which implies
// it, comes first; declined is said again until it is answered.
const (
	joinedAfter   = time.Second
	declinedFirst = 5 * time.Second
	declinedMost  = time.Minute
)

// sayAgain says what is due.
func (a *Agent) sayAgain(now time.Time) {
	w := a.work
	if w == nil || !a.linkUp || w.sayAt.IsZero() || now.Before(w.sayAt) {
		return
	}
	if w.state != workOut {
		w.sayAt = time.Time{}
		a.do(SayJoined{a.current.Order, a.current.Digest})
		return
	}
	a.do(SayDeclined{a.current.Order, a.current.Digest, w.declined})
	w.sayAt, w.sayWait = now.Add(w.sayWait*3/4+a.jitter(w.sayWait/2)), min(2*w.sayWait, declinedMost)
}

// stood takes the agent's place in the round, and the answer to declined.
func (a *Agent) stood(e StandingCame) {
	if a.current != nil && a.current.Digest == e.Announcement {
		a.away.apart = e.Place == wire.PlaceNotSelected
	}
	if w := a.work; w != nil && w.state == workOut && a.current.Digest == e.Announcement {
		w.sayAt = time.Time{}
	}
}

// decline ends the agent's part in the round.
func (a *Agent) decline(now time.Time, reason wire.DeclineReason) {
	w := a.work
	w.state, w.declined = workOut, reason
	w.sayAt, w.sayWait = now.Add(declinedFirst*3/4+a.jitter(declinedFirst/2)), 2*declinedFirst
	a.do(SayDeclined{a.current.Order, a.current.Digest, reason})
	a.saved = nil // its file goes, too
	a.do(Release{})
	a.ended(w, WorkEnded{Result: WorkDeclined, Declined: reason})
}

// ended reports how work ended. Later answers, such as a second
// acceptance, is not told.
func (a *Agent) ended(w *work, f WorkEnded) {
	if !w.told {
		w.told, f.Round, f.Kind = true, w.round, w.kind
		a.report(f)
	}
}

func (a *Agent) fetched(now time.Time, e Fetched) {
	if w := a.work; w == nil || w.state != workFetching || w.base != e.Base {
		return
	}
	if e.Failed {
		a.decline(now, wire.DeclineFetch)
		return
	}
	a.train()
}

// trained offers the update if it is asked for.
func (a *Agent) trained(now time.Time, e Trained) {
	w := a.work
	if w == nil || w.state != workTraining || w.run != e.Run || w.round != e.Round {
		return
	}
	if e.Failed != 0 {
		a.decline(now, e.Failed)
		return
	}
	w.state, w.update = workHolding, e.Update
	if e.Tells && !w.asked() {
		a.sayHello()
	}
	a.offer()
}

// mayOffer reports whether a restart would know of the round that is announced, by whatever attempt.
func (a *Agent) mayOffer() bool {
	round := a.floor
	round.Attempt, round.Phase = 0, 0
	return a.placed.Compare(round) >= 0
}

// offer sends the update if it is asked for, and a restart would know of its round.
func (a *Agent) offer() {
	if w := a.work; w.state == workHolding && w.asked() && a.mayOffer() {
		if a.task.samples < w.invited.Samples && a.saidRows != a.task.samples {
			a.sayHello() // else an update of fewer rows would be refused
		}
		w.state, w.offered, w.sayAt = workSubmitting, true, time.Time{}
		a.do(Submit{w.run, w.round, w.update, a.current.Announcement.Credit})
	}
}

// asked reports whether the agent is to send its update. An update of an earlier process was to be sent.
func (w *work) asked() bool { return w.invited.Uploads || w.invited.Announcement.IsZero() }

// is reports whether an answer is about this work's update: two rounds may
// have updates of equal content.
func (w *work) is(run wire.RunID, round wire.RoundID, update wire.Digest) bool {
	return w.run == run && w.round == round && w.update == update
}

// accepted believes that the running coordinator holds the update. It is kept here until the round is over: that
// coordinator may fall.
func (a *Agent) accepted(now time.Time, e AcceptedCame) {
	if w := a.awaitingOutcome; w != nil && w.is(e.Run, e.Round, e.Update) {
		a.awaitingOutcome = nil
		a.ended(w, WorkEnded{Result: WorkAccepted})
		return
	}
	w := a.work
	if c := a.current; w == nil && c != nil && c.Order.Run == e.Run && c.Order.Round == e.Round {
		a.heard(now) // its update outlived its memory of it
	}
	if w == nil || !w.is(e.Run, e.Round, e.Update) {
		return
	}
	a.heard(now)
	if w.state == workSubmitting {
		w.state = workAccepted
		a.ended(w, WorkEnded{Result: WorkAccepted})
	}
}

func (a *Agent) refused(now time.Time, e RefusedCame) {
	w := a.work
	if p := a.awaitingOutcome; p != nil && p.is(e.Run, e.Round, e.Update) {
		a.giveUp()
		return
	}
	if w == nil || !w.is(e.Run, e.Round, e.Update) || w.state != workSubmitting {
		return
	}
	a.heard(now)
	w.state, w.declined, w.sayAt = workOut, wire.DeclineRefused, time.Time{}
	a.do(Release{Refused: e.Reason})
	a.ended(w, WorkEnded{Result: WorkRefused, Refused: e.Reason})
}
