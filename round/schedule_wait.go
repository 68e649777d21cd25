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

// scheduleWait returns what the schedule waits for, and until when if it knows; empty if a round may be opened. A
// process that has asked nobody for a hello knows of no rows. A statistics round in the middle of a run needs no new
// ones.
func (c *Coordinator) scheduleWait(now time.Time) (WaitReason, time.Time) {
	s, p := &c.cfg.Schedule, &c.rec.Plan
	again := p.Kind == wire.KindStatistics && p.Base.Present()
	if c.hellosRequested && c.linkUp && !again && c.roster.membersWithNewRows < s.NewRows.MinAgents {
		return WaitNewRows, time.Time{}
	}
	if at := s.NextOpening(now); at.After(now) {
		return WaitWindow, at
	}
	return "", time.Time{}
}

// mayOpen reports whether the schedule lets a round be opened.
func (c *Coordinator) mayOpen(now time.Time) bool {
	why, _ := c.scheduleWait(now)
	return why == ""
}

// waitForSchedule reports whether the schedule lets no round be opened, and then sees to that. Agents are told that
// none is under way; a window wakes the machine, and new rows any hello.
func (c *Coordinator) waitForSchedule(now time.Time) bool {
	why, until := c.scheduleWait(now)
	if why == "" {
		c.lastReportedWait = ScheduleWait{}
		return false
	}
	if !c.isInPhase(CoordinatorIdle) || c.announcedPhase != wire.PhaseIdle { // else that is announced, as in a pause
		c.enterIdlePhase(now, CoordinatorIdle)
	}
	c.phaseDeadline = until
	c.reportWait(why, until)
	return true
}

// enterIdlePhase says that no round is under way, in one of the phases of which that is so.
func (c *Coordinator) enterIdlePhase(now time.Time, p CoordinatorPhase) {
	switch {
	case c.rec.Round == 0:
		c.advanceRound()
	case !c.isInPhase(CoordinatorClosing) && !c.isInPhase(CoordinatorCollecting) && !c.isInPhase(CoordinatorGathering):
		c.rec.Attempt++ // this or a later phase of the round was announced
	}
	c.pendingParticipants, c.progressByAgent, c.retryAt, c.lastReportedWait = nil, nil, time.Time{}, ScheduleWait{}
	c.forgetParticipants()
	c.enter(now, p)
	c.saveJournalRecord(now)
	c.announceRecord(now, wire.PhaseIdle)
}

// reportWait reports what is waited for, when it changes.
func (c *Coordinator) reportWait(why WaitReason, until time.Time) {
	f := ScheduleWait{Reason: why, WindowOpensAt: until}
	if n := &c.cfg.Schedule.NewRows; why == WaitNewRows {
		f.AgentsWithNewRows, f.RequiredAgents, f.RequiredNewRows, f.WithoutRowCount = c.roster.membersWithNewRows,
			n.MinAgents, n.MinRowsPerAgent,
			c.roster.availableMembers-c.roster.membersReportingRows
	}
	if f != c.lastReportedWait {
		f.Resumed = c.lastReportedWait.Reason == why
		c.report(f)
		f.Resumed = false
		c.lastReportedWait = f
	}
}

// newRowsSuffice reports whether the rows that the round waits for are there.
func (c *Coordinator) newRowsSuffice() bool {
	if c.lastReportedWait.Reason != WaitNewRows {
		return false
	}
	if c.roster.membersWithNewRows < c.cfg.Schedule.NewRows.MinAgents {
		c.reportWait(WaitNewRows, time.Time{})
		return false
	}
	return true
}

// unusedRows is how many rows of an agent no round has used, by its hello. A hello from before the agent knew of its
// part in the newest model is void.
func (m *rosterMember) unusedRows(e *HelloReceived) (rows uint64, tells bool) {
	n := &e.Hello.NewRows
	if m.boot == e.Boot && n.LastUsedRound < m.lastRoundUsingRows {
		return 0, true
	}
	return uint64(n.UnusedRows), n.Known
}

// markRowsUsed takes note that the model has an agent's rows.
func (c *Coordinator) markRowsUsed(a wire.AgentID, r wire.RoundID) {
	if c.roster.members[a] != nil && c.cfg.Schedule.NewRows.On() && c.rec.Plan.Kind == wire.KindTraining {
		c.roster.changeMember(a, func(m *rosterMember) { m.newRows, m.lastRoundUsingRows = 0, r })
	}
}
