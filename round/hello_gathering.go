package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// startGathering enters the gathering phase and asks all agents for a hello.
func (c *CoordinatorMachine) startGathering(now time.Time) {
	c.enterPhase(now, CoordinatorGathering)
	c.hellosRequested = true
	c.progress.progressByAgent = nil
	c.forgetParticipants()
	c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	c.saveJournalRecord(now)
	c.announcePhase(now, wire.PhaseGathering)
}

// openRoundIfGathered opens the round if enough agents are present: the target number at any time, or the minimum
// number at the end of the gathering window. While the broker is unreachable the window stays open.
func (c *CoordinatorMachine) openRoundIfGathered(now time.Time, due bool) {
	// Count sidelined agents (agents excluded from draws) too, since they are readmitted early if too few others are
	// present.
	there := c.roster.presentAndFitMembers
	if !now.Before(c.retryRoundAt) {
		c.retryRoundAt = time.Time{}
	}
	switch target := c.gatheringTarget(); {
	case !c.linkUp:
		if due {
			c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
		}
	case now.Before(c.retryRoundAt):
		if due {
			c.phaseDeadline = c.retryRoundAt
		}
	case (target > 0 && there >= target || due && there >= c.requiredAgentCount()) && c.scheduleAllowsRound(now):
		c.openRound(now)
	case due && c.announcement.publishedAt.IsZero():
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	case due && c.startScheduleWaitIfNeeded(now):
	case due:
		c.reportEvent(GatheringExtended{PresentAgents: there, MinAgents: c.requiredAgentCount()})
		c.doubleAnswerProbability(now)
		c.record.Attempt++
		c.startGathering(now)
	}
}

// requiredAgentCount returns the number of agents that must be present at the end of the gathering window. In the first
// round of a run it returns gather.first if that option exceeds gather.minimum.
func (c *CoordinatorMachine) requiredAgentCount() int {
	if c.record.LastOutcome == nil && c.record.Plan.BaseModelVersion == 0 {
		return max(c.cfg.Gather.MinAgents, c.cfg.Gather.FirstRoundMinAgents)
	}
	return c.cfg.Gather.MinAgents
}

// startNextRound starts the next round. It opens the round at once if it knows that enough agents are present. After a
// restart it first asks all agents for a hello message.
func (c *CoordinatorMachine) startNextRound(now time.Time) {
	if why := c.runStopReason(now); why != "" {
		c.finishRun(now, why)
		return
	}
	if c.pauseOrStopByCommand(now) || c.startScheduleWaitIfNeeded(now) {
		return
	}
	c.advanceRound()
	c.startResponseLottery(now)
	if !c.cfg.Gather.ResponseLottery.IsEnabled() && c.linkUp && c.hellosRequested &&
		c.roster.presentAndFitMembers >= c.cfg.Gather.MinAgents {
		c.openRound(now)
	} else {
		c.startGathering(now)
	}
}

// handleHello updates the agent's entry in the roster and answers the hello.
func (c *CoordinatorMachine) handleHello(now time.Time, e HelloReceived) {
	if q := e.Hello.FateRequest; q.Round > 0 {
		c.emitEffect(SendUpdateFate{e.Agent, q.Round, q.Update, c.record.updateFate(q.Round, e.Agent, q.Update)})
	}
	// An agent that has not loaded the task reports no data: keep the data that it reported before.
	if e.Hello.UnfitReason == 0 && e.Hello.Samples == 0 {
		c.answerHello(now, &e)
		return
	}
	c.handleCandidateResiduals(now, e.Agent, e.Hello.Residuals)
	c.handleAgentEvaluation(e.Agent, e.Hello.Evaluation)
	c.handleEdgeReport(e.Agent, &e.Hello.EdgeMeasurements)
	news, out, misfit := false, c.isSidelined(e.Agent), ""
	if u := &e.Hello.DataProblem; e.Hello.UnfitReason != 0 && *u != (wire.DataProblem{}) {
		misfit = u.Column + " " + u.Reason
	}
	m := c.roster.changeMember(e.Agent, func(m *rosterMember) {
		fresh, tells := m.unusedRowCount(&e)
		usedIn := m.lastRoundUsingRows
		if m.boot != e.Boot {
			usedIn = 0
		}
		news = !m.isPresent || m.boot != e.Boot || m.unfitReason != e.Hello.UnfitReason || m.dataProblem != misfit
		*m = rosterMember{
			boot: e.Boot, isPresent: true, isSidelined: out, unfitReason: e.Hello.UnfitReason, dataProblem: misfit,
			newRowCount: fresh, reportsNewRows: tells, lastRoundUsingRows: usedIn,
			rowCount: e.Hello.Samples, peerKey: e.Hello.PeerKey, supportsClipping: e.Hello.SupportsClippedMixing,
			location: e.Hello.Location, neighbors: e.Hello.ChosenNeighbors, lastUpdateNorm: m.lastUpdateNorm,
			helloWindowNumber: m.helloWindowNumber,
		}
	})
	c.countHello(m, e.Hello.AnswerProbability)
	switch {
	case news && m.unfitReason != 0:
		c.record.StopState.RemoveAgent(e.Agent)
		c.reportEvent(AgentUnfit{e.Agent, m.unfitReason, e.Hello.DataProblem, c.roster.eligibleMembers})
	case news:
		if c.cfg.Stop.IsEnabled() {
			c.record.StopState.AddAgent(e.Agent)
		}
		c.reportEvent(AgentEligible{e.Agent, m.rowCount, c.roster.eligibleMembers})
	}
	c.answerHello(now, &e)
}

func (c *CoordinatorMachine) answerHello(now time.Time, e *HelloReceived) {
	if p := c.progress.progressByAgent[e.Agent]; p != nil && (c.isInPhase(CoordinatorCollecting) ||
		p.state == stateAccepted) {
		c.answerParticipantHello(now, p, e.Hello.UnfitReason)
		return
	}
	place := wire.StatusNotSelected
	if c.isInPhase(CoordinatorGathering) && e.Hello.UnfitReason == 0 && e.Hello.Samples > 0 {
		place = wire.StatusSelectionPending
	}
	c.sendRoundStanding(e.Agent, place)
}

// sendRoundStanding answers an agent's hello. It sends nothing before the current announcement is published; the agent
// then repeats its hello.
func (c *CoordinatorMachine) sendRoundStanding(a wire.AgentID, place wire.SelectionStatus) {
	if c.announcement.isPublished {
		e := SendRoundStanding{Agent: a, Standing: place}
		if m := c.roster.memberByAgent[a]; m != nil {
			e.KnownRowCount = m.rowCount
		}
		c.emitEffect(e)
	}
}

// answerParticipantHello answers the hello message of a participant that has restarted or lost its state.
func (c *CoordinatorMachine) answerParticipantHello(now time.Time, p *participantProgress, unfit wire.DeclineReason) {
	switch {
	case p.state == stateAccepted:
		c.emitEffect(SendUpdateAcceptance{p.Agent, c.record.Round, p.AcceptedUpdateDigest})
	case p.state == stateDroppedOut:
		c.sendRoundStanding(p.Agent, wire.StatusNotSelected)
	case unfit != 0:
		c.sendRoundStanding(p.Agent, wire.StatusNotSelected)
		c.dropParticipant(now, p, unfit)
	default:
		c.inviteParticipant(now, p)
	}
}

// handlePresence processes the departure of an agent. It ignores arrivals, since an agent that arrives sends a hello.
func (c *CoordinatorMachine) handlePresence(now time.Time, e PresenceReceived) {
	if m := c.roster.memberByAgent[e.Agent]; m != nil && m.isPresent && e.State != wire.PresenceOnline {
		c.roster.changeMember(e.Agent, func(m *rosterMember) { m.isPresent = false })
		why := LeftConnectionLost
		if e.State == wire.PresenceOffline {
			why = LeftOffline
		}
		c.reportEvent(AgentLeft{e.Agent, why, c.roster.eligibleMembers})
		if p := c.progress.progressByAgent[e.Agent]; p != nil && c.isInPhase(CoordinatorCollecting) &&
			p.state < stateAccepted &&
			p.DrawCount > 0 &&
			c.roundHasMixing() {
			c.reassignDraws(now, p)
			c.closeRoundIfReady(now)
		}
	}
}

var eligibleHellosMetric = observe.Counter("agents_counted_total",
	"Hello messages that made an agent eligible for rounds, counted at most once per start of the agent.")

// AgentEligible is emitted when a hello message shows that an agent may be drawn.
type AgentEligible struct {
	Agent          wire.AgentID
	RowCount       uint64
	EligibleAgents int // number K of eligible agents, including this one
}

// Describe implements observe.Event.
func (e AgentEligible) Describe(d *observe.EventDescription) {
	d.IncCounter(eligibleHellosMetric)
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	d.Log(observe.Info, "agent available", "agent", e.Agent, "rows", e.RowCount, "agents", e.EligibleAgents)
}

var unfitAgentsMetric = observe.CounterByLabel("agents_unfit_total",
	"Hello messages in which an agent reported that it cannot perform the task, by reason.",
	"reason", observe.StringerNames(wire.DeclineReasons()))

// AgentUnfit is emitted when an agent's hello message shows that the agent cannot perform the task.
type AgentUnfit struct {
	Agent          wire.AgentID
	Reason         wire.DeclineReason
	DataProblem    wire.DataProblem // problem with the local data; zero if none is reported
	EligibleAgents int              // number K of eligible agents, without this one
}

// Describe implements observe.Event. The log contains only the parts of the data problem that the agent reported.
func (e AgentUnfit) Describe(d *observe.EventDescription) {
	d.IncCounter(unfitAgentsMetric, e.Reason.String())
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	text := func(name, value string) {
		if value != "" {
			attributes = append(attributes, name, value)
		}
	}
	text("column", e.DataProblem.Column)
	text("problem", e.DataProblem.Reason)
	if e.DataProblem.TotalValues > 0 {
		attributes = append(attributes, "unusable_values", e.DataProblem.UnusableValues, "values",
			e.DataProblem.TotalValues)
	}
	text("example", e.DataProblem.ExampleLocation)
	d.Log(observe.Warn, "agent cannot perform the task", attributes...)
}

var departedAgentsMetric = observe.CounterByLabel("agents_left_total",
	"Agents that became absent, by reason: offline (signed off), lost (connection loss reported by the broker), "+
		"silent (did not reply to an invitation), revoked (removed from the list of agents).",
	"reason", observe.NamesAsStrings(LeaveReasons()))

// AgentLeft is emitted when an agent is no longer eligible. The agent becomes eligible again with its next hello
// message.
type AgentLeft struct {
	Agent          wire.AgentID
	Reason         LeaveReason
	EligibleAgents int // number K of eligible agents, without this one
}

// Describe implements observe.Event.
func (e AgentLeft) Describe(d *observe.EventDescription) {
	d.IncCounter(departedAgentsMetric, string(e.Reason))
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	d.Log(observe.Info, "agent left", "agent", e.Agent, "reason", e.Reason, "agents", e.EligibleAgents)
}

var extendedGatheringsMetric = observe.Counter("gatherings_extended_total",
	"Times that the wait before a round was extended because too few agents had replied.")

// GatheringExtended is emitted when too few agents are present, so that gathering continues.
type GatheringExtended struct{ PresentAgents, MinAgents int }

// Describe implements observe.Event.
func (e GatheringExtended) Describe(d *observe.EventDescription) {
	d.IncCounter(extendedGatheringsMetric)
	d.SetGauge(eligibleAgentsMetric, float64(e.PresentAgents))
	d.Log(observe.Warn, "too few agents to start a round", "agents", e.PresentAgents, "minimum", e.MinAgents)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("waiting for agents: %d of %d are present", e.PresentAgents,
		e.MinAgents))
}
