package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// announced obeys an announcement that is not older than the last one obeyed,
// and an equal one only if it is the same.
func (a *Agent) announced(now time.Time, e AnnouncementCame) {
	switch order := e.Order.Compare(a.floor); {
	case order < 0:
		a.report(AnnouncementIgnored{e.Order, IgnoredOlder})
		a.outdated(now, &e.Announcement)
	case order == 0 && e.Digest != a.floorDigest:
		a.report(AnnouncementIgnored{e.Order, IgnoredConflict})
	case order > 0:
		a.selected(now, &e)
		a.do(Obey{e.Order, e.Digest}) // beside what follows
		a.follow(now, e)
	case a.current == nil:
		a.selected(now, &e)
		a.follow(now, e)
	} // else the broker said it again
}

// selected takes an announcement that names this agent for an invitation, if the broker did not keep it: then the round
// has just begun. Else the agent says hello, and the answer tells how much time is left. So it does when it cannot tell
// of how many rows the coordinator takes an update: the answer says that, too.
func (a *Agent) selected(now time.Time, e *AnnouncementCame) {
	switch {
	case e.Weight == 0, e.Announcement.Phase != wire.PhaseOpen:
	case a.early != nil && a.early.Announcement == e.Digest: // invited already
	case e.Retained, a.knownRows == 0, a.saidRows != a.knownRows, a.task.ready && a.task.samples < a.knownRows:
		a.helloDue, a.lotteryLost = true, false
	default:
		left := time.Duration(e.Announcement.RoundWithin) * time.Millisecond
		a.early, a.earlyAt = &Invited{Announcement: e.Digest, Left: left, Weight: e.Weight, Uploads: true,
			Samples: a.knownRows}, now
	}
}

// obeyed takes whether the place of an announcement is saved. Updates wait for it, since none may be offered for a
// round that a restart would forget; while it cannot be saved the agent declines. Later it may be saved after all.
func (a *Agent) obeyed(now time.Time, e Obeyed) {
	if e.Order != a.floor {
		return // a later one is being saved
	}
	before := a.unfit()
	if a.unsaved = e.Failed; !e.Failed {
		a.placed = e.Order
	}
	switch w := a.work; {
	case w == nil:
	case !e.Failed:
		a.offer()
	case w.state <= workHolding && !a.mayOffer():
		a.decline(now, wire.DeclineStorage)
	}
	a.helloDue = a.helloDue || a.unfit() != before
}

// follow makes an announcement the one that the agent works for.
func (a *Agent) follow(now time.Time, e AnnouncementCame) {
	// A coordinator of another epoch knows of its agents what they told the one before it at most.
	anew := a.current == nil || a.current.Order.Run != e.Order.Run || a.current.Order.Epoch != e.Order.Epoch
	// Whoever has missed a whole round may count as gone since: the link behind the broker was cut, say.
	missed := a.current != nil && e.Order.Round > a.current.Order.Round+1
	a.floor, a.floorDigest, a.current, a.objectAt = e.Order, e.Digest, &e, time.Time{}
	a.report(AnnouncementObeyed{e.Order})
	if err := e.Announcement.Extra.Unsupported(); err != nil {
		a.report(NotUnderstood{wire.TypeAnnouncement, err})
	}
	if a.early != nil && a.early.Announcement != e.Digest {
		a.early = nil // of a round that has gone by
	}
	a.passedOver(&e)
	hadPart := a.work != nil
	a.leaveOldWork()
	a.away.had = a.away.had || hadPart && a.work == nil
	a.resumeSaved(now)
	a.offerAgain()
	if anew || missed || e.Announcement.Phase == wire.PhaseGathering {
		a.helloDue = true
		a.draw(&e)
	}
	again := a.task.ready && a.task.unfit == wire.DeclineFetch // perhaps it can be had now
	if t := &e.Announcement.Task; t.Present() && (t.Hash != a.task.hash || again) {
		a.task = taskState{hash: t.Hash}
		a.do(Prepare{*t})
	}
	a.priceRound()
	a.replayEarly(now)
}

// outdated owes the coordinator a hello that names the place which the agent obeys, since one that announces an older
// place does not know it: its state folder is an older copy, say. Replays cost no more than a hello a minute.
func (a *Agent) outdated(now time.Time, older *wire.Announcement) {
	if !a.objectAt.IsZero() || now.Before(a.objectNot) {
		return
	}
	if a.objectNot = now.Add(helloMost); !a.drawn(older.Respond.Of) {
		return
	}
	within := time.Duration(older.HelloWithin) * time.Millisecond
	a.objectAt = now.Add(a.jitter(within))
}

// object says that hello when it is due, also without the announcement that the agent obeys: a process that has just
// started may know nothing of it but its place.
func (a *Agent) object(now time.Time) {
	if a.linkUp && !a.objectAt.IsZero() && !now.Before(a.objectAt) {
		a.objectAt = time.Time{}
		a.sayHello()
	}
}

// sameRound reports whether the current announcement is about the round of
// the work: a new attempt changes nothing for an update's identity.
func (a *Agent) sameRound(run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	c := a.current
	return c.Order.Run == run && c.Order.Round == round && c.Announcement.Base.Hash == base &&
		c.Announcement.Phase == wire.PhaseOpen
}

// over reports whether the coordinator needs an update of a round no more: the round is folded, or abandoned, or the
// coordinator has gone back behind it, or it is of another run. Nothing else ends an update, not an acceptance and no
// time: the coordinator that has accepted it may have lost it.
func (a *Agent) over(epoch wire.Epoch, run wire.RunID, round wire.RoundID, base wire.Digest) bool {
	o, ann := a.current.Order, &a.current.Announcement
	return o.Run != run || ann.Folded >= round || o.Round > round || o.Epoch > epoch && o.Round < round ||
		o.Round == round && ann.Phase == wire.PhaseOpen && ann.Base.Hash != base
}

// leaveOldWork ends the work of a round that is over.
func (a *Agent) leaveOldWork() {
	w := a.work
	if w == nil || !a.over(w.epoch, w.run, w.round, w.base) {
		return
	}
	a.work = nil
	a.giveUp()
	if w.asked() || w.offered { // another attempt may have chosen other uploaders
		a.read(w.run, w.round, w.update)
	}
	switch {
	case w.state == workSubmitting && w.cut && a.current.Order.Run == w.run:
		a.awaitingOutcome = w // offered again with the link, it is answered
	case w.state == workHolding && !w.asked() && !w.offered:
		a.ended(w, WorkEnded{Result: WorkMixed})
	default:
		a.ended(w, WorkEnded{Result: WorkSuperseded})
	}
	a.do(Release{})
}

// read finds out what became of an update of the announced run.
func (a *Agent) read(run wire.RunID, round wire.RoundID, update wire.Digest) {
	if c := a.current; !update.IsZero() && c.Order.Run == run && c.Announcement.Folded >= round {
		a.do(Read{c.Order, round, update, c.Announcement.Outcome, c.Announcement.Folded})
	}
}

// giveUp counts the work that went by while the link was down as lost.
func (a *Agent) giveUp() {
	if w := a.awaitingOutcome; w != nil {
		a.awaitingOutcome = nil
		a.ended(w, WorkEnded{Result: WorkSuperseded})
	}
}

// offerAgain has an update on its way offered to a coordinator that has announced
// the round anew: it has restarted, and what it lent is void.
func (a *Agent) offerAgain() {
	if w := a.work; w != nil && w.state == workSubmitting && a.sameRound(w.run, w.round, w.base) {
		w.state = workHolding
		a.offer()
	}
}

// resumeSaved takes up an update that an earlier process left on disk, or
// throws it away if its round is over.
func (a *Agent) resumeSaved(now time.Time) {
	s := a.saved
	switch {
	case s == nil:
		return
	case a.over(s.Epoch, s.Run, s.Round, s.Base):
		a.saved = nil
		a.read(s.Run, s.Round, s.Update)
		a.do(Release{})
		return
	case !a.sameRound(s.Run, s.Round, s.Base):
		return // it is not announced yet
	}
	a.saved = nil
	within := time.Duration(a.current.Announcement.RoundWithin) * time.Millisecond
	a.work = &work{
		epoch: s.Epoch, run: s.Run, round: s.Round, base: s.Base, kind: a.current.Announcement.Kind,
		state: workSubmitting, deadline: now.Add(within), update: s.Update,
	}
}

// prepared takes the host's word on whether the local data fit the task, and how many rows there are by now.
func (a *Agent) prepared(now time.Time, e Prepared) {
	if e.Task != a.task.hash {
		return
	}
	a.task.ready, a.task.unfit, a.task.samples, a.task.statistics = true, e.Unfit, e.Samples, e.Statistics
	a.report(TaskPrepared{Unfit: e.Unfit, Samples: e.Samples})
	a.priceRound()
	a.helloDue = true // the coordinator may count on an unfit agent, or have given up a slow one
	a.replayEarly(now)
}
