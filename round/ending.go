package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// over returns why the run is over; empty if it is not. A statistics round that is due is held first: without it agents
// would not get the model.
func (c *Coordinator) over(now time.Time) stop.Reason {
	p := &c.rec.Plan
	switch {
	case c.cfg.Course == CourseStop:
		return stop.Asked
	case c.cfg.Rounds > 0 && p.Version >= wire.ModelVersion(c.cfg.Rounds):
		return stop.Rounds
	case p.Kind == wire.KindStatistics:
		return ""
	}
	return c.rec.Stop.Verdict(&c.cfg.Stop, now)
}

// endAt is when the time of the run is used up, if nothing else brings it to an end; zero if nobody waits for it. A
// round under way goes on to its own end.
func (c *Coordinator) endAt() time.Time {
	if !c.between() || c.rec.Plan.Kind == wire.KindStatistics {
		return time.Time{}
	}
	return c.rec.Stop.End(&c.cfg.Stop)
}

// between reports whether the machine has begun, no round is under way, and the run goes on.
func (c *Coordinator) between() bool {
	return !c.entered.IsZero() && (c.in(CoordinatorIdle) || c.in(CoordinatorGathering))
}

// measured takes what was measured of a new model, before its plan is the present one.
func (c *Coordinator) measured(e *Folded) {
	s := &c.rec.Stop
	switch {
	case !c.cfg.Stop.On():
		return
	case c.rec.Plan.Kind == wire.KindStatistics:
		s.Rescaled = true
		return
	}
	m := &e.Measured
	s.Note(&c.cfg.Stop, e.Next.Version, stop.Figures{Risk: m.HeldOut, R2: m.R2, Accuracy: m.Accuracy,
		Told: m.Median, Agents: e.Told})
	c.report(StopJudged{c.cfg.Stop, *s})
}

// carried counts what a participant has fetched, and sent, to come from one state to another: the model once, and its
// update once.
func (c *Coordinator) carried(from, to peerState) {
	if !c.cfg.Stop.On() {
		return
	}
	p := &c.rec.Plan
	if from == peerInvited && (to == peerJoined || to == peerAccepted) {
		c.rec.Stop.Bytes += uint64(p.base().Length)
	}
	if to == peerAccepted {
		c.rec.Stop.Bytes += uint64(p.Bytes)
	}
}

// finish ends the run. The history's line of its last round says why; it is written again if the run ends later.
func (c *Coordinator) finish(now time.Time, why stop.Reason) {
	late := c.rec.Ended != why && c.finishedRound == 0 && c.rec.Last != nil
	c.rec.Ended, c.retryAt, c.meshing = why, time.Time{}, nil
	c.enter(now, CoordinatorFinished)
	c.journal(now)
	if late {
		c.do(WriteHistory{c.rec.Run, *c.rec.Last, why})
	}
	c.announce(now, wire.PhaseFinished)
	c.report(RunFinished{c.rec.Plan.Version, why})
}
