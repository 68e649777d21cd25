package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// WaitReason tells what the next round waits for. It is a metric's label.
type WaitReason string

// The reasons.
const (
	WaitWindow  WaitReason = "window"   // the next time at which rounds are opened
	WaitNewRows WaitReason = "new_rows" // rows that no round has used
)

// WaitReasons returns all reasons, for closed label sets.
func WaitReasons() []WaitReason { return []WaitReason{WaitWindow, WaitNewRows} }

// waitsFor returns what the schedule waits for, and until when if it knows; empty if a round may be opened. A process
// that has asked nobody for a hello knows of no rows. A statistics round in the middle of a run needs no new ones.
func (c *Coordinator) waitsFor(now time.Time) (WaitReason, time.Time) {
	s, p := &c.cfg.Schedule, &c.rec.Plan
	again := p.Kind == wire.KindStatistics && p.Base.Present()
	if c.asked && c.linkUp && !again && c.roster.fresh < s.NewRows.Agents {
		return WaitNewRows, time.Time{}
	}
	if at := s.Opens(now); at.After(now) {
		return WaitWindow, at
	}
	return "", time.Time{}
}

// mayOpen reports whether the schedule lets a round be opened.
func (c *Coordinator) mayOpen(now time.Time) bool {
	why, _ := c.waitsFor(now)
	return why == ""
}

// waits reports whether the schedule lets no round be opened, and then sees to that. Agents are told that none is under
// way; a window wakes the machine, and new rows any hello.
func (c *Coordinator) waits(now time.Time) bool {
	why, until := c.waitsFor(now)
	if why == "" {
		c.waiting = RoundWaits{}
		return false
	}
	if !c.in(CoordinatorIdle) || c.phase != wire.PhaseIdle { // else that is announced, as in a pause
		c.idle(now, CoordinatorIdle)
	}
	c.wakeAt = until
	c.tellWait(why, until)
	return true
}

// idle says that no round is under way, in one of the phases of which that is so.
func (c *Coordinator) idle(now time.Time, p CoordinatorPhase) {
	switch {
	case c.rec.Round == 0:
		c.advance()
	case !c.in(CoordinatorClosing) && !c.in(CoordinatorCollecting) && !c.in(CoordinatorGathering):
		c.rec.Attempt++ // this or a later phase of the round was announced
	}
	c.meshing, c.peers, c.retryAt, c.waiting = nil, nil, time.Time{}, RoundWaits{}
	c.forgetParticipants()
	c.enter(now, p)
	c.journal(now)
	c.announce(now, wire.PhaseIdle)
}

// tellWait reports what is waited for, when it changes.
func (c *Coordinator) tellWait(why WaitReason, until time.Time) {
	f := RoundWaits{Reason: why, Until: until}
	if n := &c.cfg.Schedule.NewRows; why == WaitNewRows {
		f.Fresh, f.Agents, f.Rows, f.WithoutRowCount = c.roster.fresh, n.Agents, n.Rows, c.roster.there-c.roster.telling
	}
	if f != c.waiting {
		f.Resumed = c.waiting.Reason == why
		c.report(f)
		f.Resumed = false
		c.waiting = f
	}
}

// rowsCame reports whether the rows that the round waits for are there.
func (c *Coordinator) rowsCame() bool {
	if c.waiting.Reason != WaitNewRows {
		return false
	}
	if c.roster.fresh < c.cfg.Schedule.NewRows.Agents {
		c.tellWait(WaitNewRows, time.Time{})
		return false
	}
	return true
}

// unused is how many rows of an agent no round has used, by its hello. A hello from before the agent knew of its part
// in the newest model is void.
func (m *member) unused(e *HelloCame) (rows uint64, tells bool) {
	n := &e.Hello.NewRows
	if m.boot == e.Boot && n.Since < m.usedIn {
		return 0, true
	}
	return uint64(n.Rows), n.Told
}

// used takes note that the model has an agent's rows.
func (c *Coordinator) used(a wire.AgentID, r wire.RoundID) {
	if c.roster.members[a] != nil && c.cfg.Schedule.NewRows.On() && c.rec.Plan.Kind == wire.KindTraining {
		c.roster.change(a, func(m *member) { m.newRows, m.usedIn = 0, r })
	}
}
