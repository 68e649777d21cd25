package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// ScheduleWaitReason is the reason why the next round waits, used as a metric label.
type ScheduleWaitReason string

// Reasons why the schedule delays the next round.
const (
	WaitForWindow  ScheduleWaitReason = "window"   // waits for the next time window
	WaitForNewRows ScheduleWaitReason = "new_rows" // waits for rows that no round has used
)

// ScheduleWaitReasons returns all reasons for a delay, for use as metric labels.
func ScheduleWaitReasons() []ScheduleWaitReason {
	return []ScheduleWaitReason{WaitForWindow, WaitForNewRows}
}

// currentScheduleWait returns the reason why the schedule delays the next round, and the end of the wait if it is
// known. The reason is empty if a round may open. New rows are ignored until agents have been asked for a hello
// message. A repeated statistics round needs no new rows.
func (c *CoordinatorMachine) currentScheduleWait(now time.Time) (ScheduleWaitReason, time.Time) {
	s, p := &c.cfg.Schedule, &c.record.Plan
	again := p.Kind == wire.KindStatistics && p.BaseModel.IsSet()
	if c.hellosRequested && c.linkUp && !again && c.roster.membersWithNewRows < s.NewRows.MinAgents {
		return WaitForNewRows, time.Time{}
	}
	if at := s.NextRoundOpening(now); at.After(now) {
		return WaitForWindow, at
	}
	return "", time.Time{}
}

func (c *CoordinatorMachine) scheduleAllowsRound(now time.Time) bool {
	why, _ := c.currentScheduleWait(now)
	return why == ""
}

// startScheduleWaitIfNeeded starts the idle phase if the schedule does not allow a round, and reports whether it did.
// The wait ends with the next window, or with a hello message that reports enough new rows.
func (c *CoordinatorMachine) startScheduleWaitIfNeeded(now time.Time) bool {
	why, until := c.currentScheduleWait(now)
	if why == "" {
		c.lastReportedWait = ScheduleWait{}
		return false
	}
	// Announce the idle phase again only if necessary: after a pause it may already be announced.
	if !c.isInPhase(CoordinatorIdle) || c.announcement.phase != wire.PhaseIdle {
		c.enterIdlePhase(now, CoordinatorIdle)
	}
	c.phaseDeadline = until
	c.reportScheduleWait(why, until)
	return true
}

// enterIdlePhase enters phase p, in which no round is in progress, and announces it.
func (c *CoordinatorMachine) enterIdlePhase(now time.Time, p CoordinatorPhase) {
	switch {
	case c.record.Round == 0:
		c.advanceRound()
	case !c.isInPhase(CoordinatorClosing) && !c.isInPhase(CoordinatorCollecting) && !c.isInPhase(CoordinatorGathering):
		c.record.Attempt++ // The round number was already announced, so use a new attempt.
	}
	c.mixing.pendingParticipants, c.progress.progressByAgent, c.retryRoundAt, c.lastReportedWait = nil, nil,
		time.Time{},
		ScheduleWait{}
	c.forgetParticipants()
	c.enterPhase(now, p)
	c.saveJournalRecord(now)
	c.announcePhase(now, wire.PhaseIdle)
}

// reportScheduleWait reports the reason for the wait if it has changed.
func (c *CoordinatorMachine) reportScheduleWait(why ScheduleWaitReason, until time.Time) {
	f := ScheduleWait{Reason: why, WindowOpensAt: until}
	if n := &c.cfg.Schedule.NewRows; why == WaitForNewRows {
		f.AgentsWithNewRows, f.RequiredAgents, f.RequiredNewRows, f.AgentsWithoutRowCount = c.roster.membersWithNewRows,
			n.MinAgents, n.MinRowsPerAgent,
			c.roster.presentAndFitMembers-c.roster.membersReportingNewRows
	}
	if f != c.lastReportedWait {
		f.IsRepeated = c.lastReportedWait.Reason == why
		c.reportEvent(f)
		f.IsRepeated = false
		c.lastReportedWait = f
	}
}

// newRowsSuffice reports whether a round that waits for new rows may open.
func (c *CoordinatorMachine) newRowsSuffice() bool {
	if c.lastReportedWait.Reason != WaitForNewRows {
		return false
	}
	if c.roster.membersWithNewRows < c.cfg.Schedule.NewRows.MinAgents {
		c.reportScheduleWait(WaitForNewRows, time.Time{})
		return false
	}
	return true
}

// unusedRowCount returns the number of an agent's rows that no round has used, according to the agent's hello. It
// returns 0 if the agent sent the hello message before it learned that the newest model used its rows.
func (m *rosterMember) unusedRowCount(e *HelloReceived) (rows uint64, tells bool) {
	n := &e.Hello.NewRows
	if m.boot == e.Boot && n.LastUsedRound < m.lastRoundUsingRows {
		return 0, true
	}
	return uint64(n.UnusedRows), n.IsKnown
}

// markRowsUsed records that round r used the rows of agent a.
func (c *CoordinatorMachine) markRowsUsed(a wire.AgentID, r wire.RoundID) {
	if c.roster.memberByAgent[a] != nil && c.cfg.Schedule.NewRows.IsEnabled() &&
		c.record.Plan.Kind == wire.KindTraining {
		c.roster.changeMember(a, func(m *rosterMember) { m.newRowCount, m.lastRoundUsingRows = 0, r })
	}
}

var (
	scheduleWaitingMetric = observe.GaugeByLabel("schedule_waiting",
		"Condition of round.schedule that delays the next round: 1 for that condition, 0 for all others.", "for",
		observe.NamesAsStrings(ScheduleWaitReasons()))
	agentsWithNewRowsMetric = observe.OptionalGauge("agents_with_new_rows",
		"Agents that had enough new rows (round.schedule.new_rows) when the coordinator last waited for new rows.")
)

// ScheduleWaitValue is the name of the status value of type *ScheduleWait. It is removed when the next phase begins.
const ScheduleWaitValue = "schedule wait"

// ScheduleWait is emitted when the schedule does not allow a round to open yet. It is emitted again with IsRepeated
// when more of the awaited rows have arrived.
type ScheduleWait struct {
	Reason ScheduleWaitReason `json:"for"`
	// time at which the next window opens; zero if the wait is for new rows
	WindowOpensAt time.Time `json:"until,omitzero"`
	// number of agents that have at least RequiredNewRows rows that no round has used
	AgentsWithNewRows int `json:"agents_with_new_rows"`
	// number of agents that must each have RequiredNewRows new rows
	RequiredAgents        int  `json:"agents_wanted,omitempty"`
	RequiredNewRows       int  `json:"rows_wanted,omitempty"` // required number of new rows per agent
	AgentsWithoutRowCount int  `json:"agents_without_row_count,omitempty"`
	IsRepeated            bool `json:"-"`
}

// Describe implements observe.Event.
func (e ScheduleWait) Describe(d *observe.EventDescription) {
	d.ShowStatusValue(ScheduleWaitValue, &e)
	d.SelectGaugeState(scheduleWaitingMetric, string(e.Reason))
	if e.Reason == WaitForWindow {
		d.Log(observe.Info, "rounds paused until the next time window of round.schedule",
			"opens", e.WindowOpensAt.Format(time.RFC3339))
		d.ShowStatusValue(observe.ActivityStatus, "rounds paused until "+e.WindowOpensAt.Format("Mon 15:04"))
		return
	}
	if e.Reason == WaitForNewRows {
		d.SetGauge(agentsWithNewRowsMetric, float64(e.AgentsWithNewRows))
	}
	attributes := []any{"agents", e.AgentsWithNewRows, "wanted", e.RequiredAgents, "rows", e.RequiredNewRows}
	if e.IsRepeated {
		d.Log(observe.Debug, "waiting for agents to collect new rows", attributes...)
	} else {
		d.Log(observe.Info, "next round waits until enough agents have new rows",
			append(attributes, "agents_without_row_count", e.AgentsWithoutRowCount)...)
	}
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("waiting for new rows: %d of %d required agents have at "+
		"least %d new rows", e.AgentsWithNewRows,
		e.RequiredAgents,
		e.RequiredNewRows))
}
