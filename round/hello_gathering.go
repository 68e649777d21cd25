package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// startGathering asks all agents for a hello.
func (c *Coordinator) startGathering(now time.Time) {
	c.enter(now, CoordinatorGathering)
	c.hellosRequested = true
	c.progress.byAgent = nil
	c.forgetParticipants()
	c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	c.saveJournalRecord(now)
	c.announceRecord(now, wire.PhaseGathering)
}

// openIfGathered opens the round when enough agents are there: at once with the
// target, at the end of the window with the minimum. While the broker is out
// of reach the window stays open.
func (c *Coordinator) openIfGathered(now time.Time, due bool) {
	there := c.roster.availableMembers // those that sit out come back early, if too few others are there
	if !now.Before(c.retryAt) {
		c.retryAt = time.Time{}
	}
	switch target := c.gatheringTarget(); {
	case !c.linkUp:
		if due {
			c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
		}
	case now.Before(c.retryAt):
		if due {
			c.phaseDeadline = c.retryAt
		}
	case (target > 0 && there >= target || due && there >= c.requiredAgents()) && c.mayOpen(now):
		c.open(now)
	case due && c.announcement.publishedAt.IsZero(): // the window begins when agents can answer
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	case due && c.waitForSchedule(now):
	case due:
		c.report(GatheringExtended{PresentAgents: there, Minimum: c.requiredAgents()})
		c.doubleResponseShare(now)
		c.rec.Attempt++
		c.startGathering(now)
	}
}

// requiredAgents returns how many agents a window must end with: in the first round of a run gather.first, if that is
// more than gather.minimum.
func (c *Coordinator) requiredAgents() int {
	if c.rec.Last == nil && c.rec.Plan.Version == 0 {
		return max(c.cfg.Gather.Minimum, c.cfg.Gather.FirstRoundMinAgents)
	}
	return c.cfg.Gather.Minimum
}

// startNextRound goes on to the next round: straight to its opening while enough agents
// are known to be there. A process that took up a round knows only those that
// happened to say hello since, so it asks first.
func (c *Coordinator) startNextRound(now time.Time) {
	if why := c.runStopReason(now); why != "" {
		c.finish(now, why)
		return
	}
	if c.pauseOrStopByCourse(now) || c.waitForSchedule(now) {
		return
	}
	c.advanceRound()
	c.startResponseLottery(now)
	if !c.cfg.Gather.Respond.On() && c.linkUp && c.hellosRequested &&
		c.roster.availableMembers >= c.cfg.Gather.Minimum {
		c.open(now)
	} else {
		c.startGathering(now)
	}
}

// handleHello takes note of the agent, and answers whatever the phase is.
func (c *Coordinator) handleHello(now time.Time, e HelloReceived) {
	if q := e.Hello.OutcomeRequest; q.Round > 0 {
		c.emit(SendUpdateFate{e.Agent, q.Round, q.Update, c.rec.updateFate(q.Round, e.Agent, q.Update)})
	}
	if e.Hello.UnfitReason == 0 && e.Hello.Samples == 0 { // it has no task yet: what was known of its data stays
		c.answerHello(now, &e)
		return
	}
	c.handleResiduals(now, e.Agent, e.Hello.Residuals)
	c.handleEvaluation(e.Agent, e.Hello.Evaluation)
	c.handleEdgeReport(e.Agent, &e.Hello.EdgeMeasurements)
	news, out, misfit := false, c.isSidelined(e.Agent), ""
	if u := &e.Hello.DataProblem; e.Hello.UnfitReason != 0 && *u != (wire.DataProblem{}) {
		misfit = u.Column + " " + u.Reason
	}
	m := c.roster.changeMember(e.Agent, func(m *rosterMember) {
		fresh, tells := m.unusedRows(&e)
		usedIn := m.lastRoundUsingRows
		if m.boot != e.Boot {
			usedIn = 0
		}
		news = !m.present || m.boot != e.Boot || m.unfitReason != e.Hello.UnfitReason || m.dataProblem != misfit
		*m = rosterMember{
			boot: e.Boot, present: true, sidelined: out, unfitReason: e.Hello.UnfitReason, dataProblem: misfit,
			newRows: fresh, reportsNewRows: tells, lastRoundUsingRows: usedIn,
			rowCount: e.Hello.Samples, peerKey: e.Hello.PeerKey, supportsClipping: e.Hello.SupportsClipping,
			location: e.Hello.Location, neighbors: e.Hello.Neighbors, lastUpdateLength: m.lastUpdateLength,
			helloWindowNumber: m.helloWindowNumber,
		}
	})
	c.countHello(m, e.Hello.ResponseThreshold)
	switch {
	case news && m.unfitReason != 0:
		c.rec.Stop.RemoveAgent(e.Agent)
		c.report(AgentUnfit{e.Agent, m.unfitReason, e.Hello.DataProblem, c.roster.eligibleMembers})
	case news:
		if c.cfg.Stop.On() {
			c.rec.Stop.AddAgent(e.Agent)
		}
		c.report(AgentEligible{e.Agent, m.rowCount, c.roster.eligibleMembers})
	}
	c.answerHello(now, &e)
}

func (c *Coordinator) answerHello(now time.Time, e *HelloReceived) {
	if p := c.progress.byAgent[e.Agent]; p != nil && (c.isInPhase(CoordinatorCollecting) || p.state == peerAccepted) {
		c.answerParticipantHello(now, p, e.Hello.UnfitReason)
		return
	}
	place := wire.PlaceNotSelected
	if c.isInPhase(CoordinatorGathering) && e.Hello.UnfitReason == 0 && e.Hello.Samples > 0 {
		place = wire.PlaceCounted
	}
	c.sendStanding(e.Agent, place)
}

// sendStanding answers an agent, once the announcement that the answer names is out. A hello from before comes again.
func (c *Coordinator) sendStanding(a wire.AgentID, place wire.RoundStanding) {
	if c.announcement.published {
		e := SendStanding{Agent: a, Standing: place}
		if m := c.roster.members[a]; m != nil {
			e.Samples = m.rowCount
		}
		c.emit(e)
	}
}

// answerParticipantHello answers a participant that has restarted or lost its thread.
func (c *Coordinator) answerParticipantHello(now time.Time, p *participantProgress, unfit wire.DeclineReason) {
	switch {
	case p.state == peerAccepted:
		c.emit(AcceptUpdate{p.Agent, c.rec.Round, p.Accepted})
	case p.state == peerOut:
		c.sendStanding(p.Agent, wire.PlaceNotSelected)
	case unfit != 0:
		c.sendStanding(p.Agent, wire.PlaceNotSelected)
		c.dropOut(now, p, unfit)
	default:
		c.inviteParticipant(now, p)
	}
}

// handlePresence believes a leave and nothing else: an agent that is there says hello.
func (c *Coordinator) handlePresence(now time.Time, e PresenceReceived) {
	if m := c.roster.members[e.Agent]; m != nil && m.present && e.State != wire.StateOnline {
		c.roster.changeMember(e.Agent, func(m *rosterMember) { m.present = false })
		why := LeftLost
		if e.State == wire.StateOffline {
			why = LeftOffline
		}
		c.report(AgentLeft{e.Agent, why, c.roster.eligibleMembers})
		if p := c.progress.byAgent[e.Agent]; p != nil && c.isInPhase(CoordinatorCollecting) && p.state < peerAccepted &&
			p.Times > 0 &&
			c.roundHasMixing() {
			c.reassignDraws(now, p)
			c.closeIfReady(now)
		}
	}
}

var eligibleHellos = observe.Counter("agents_counted_total",
	"Hellos by which an agent became eligible, again after each of its starts.")

// AgentEligible: an agent sent a hello and may be drawn.
type AgentEligible struct {
	Agent          wire.AgentID
	Samples        uint64
	EligibleAgents int // K with the agent
}

// Describe implements observe.Event.
func (e AgentEligible) Describe(d *observe.Description) {
	d.Inc(eligibleHellos)
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	d.Log(observe.Info, "agent present", "agent", e.Agent, "rows", e.Samples, "agents", e.EligibleAgents)
}

var unfitAgents = observe.CounterByLabel("agents_unfit_total",
	"Hellos by which an agent became unable to do the task, by reason.",
	"reason", observe.StringerNames(wire.DeclineReasons()))

// AgentUnfit: an agent sent a hello and cannot do the task.
type AgentUnfit struct {
	Agent          wire.AgentID
	Reason         wire.DeclineReason
	DataProblem    wire.DataProblem // zero if the agent does not report one
	EligibleAgents int              // K without the agent
}

// Describe implements observe.Event. The log has only the parts of the data problem that the agent reports.
func (e AgentUnfit) Describe(d *observe.Description) {
	d.Inc(unfitAgents, e.Reason.String())
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	text := func(name, value string) {
		if value != "" {
			attributes = append(attributes, name, value)
		}
	}
	text("column", e.DataProblem.Column)
	text("why", e.DataProblem.Reason)
	if e.DataProblem.TotalValues > 0 {
		attributes = append(attributes, "bad", e.DataProblem.UnusableValues, "of", e.DataProblem.TotalValues)
	}
	text("where", e.DataProblem.ExampleLocation)
	d.Log(observe.Warn, "agent cannot do the task", attributes...)
}

var departedAgents = observe.CounterByLabel("agents_left_total",
	"Agents no longer counted: offline ones said so, the broker missed lost ones, silent ones did not answer "+
		"an invitation, revoked ones are no longer in the list.",
	"reason", observe.Strings(LeaveReasons()))

// AgentLeft: an agent is not counted until its next hello.
type AgentLeft struct {
	Agent          wire.AgentID
	Reason         LeaveReason
	EligibleAgents int // K without the agent
}

// Describe implements observe.Event.
func (e AgentLeft) Describe(d *observe.Description) {
	d.Inc(departedAgents, string(e.Reason))
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	d.Log(observe.Info, "agent left", "agent", e.Agent, "reason", e.Reason, "agents", e.EligibleAgents)
}

var extendedGatherings = observe.Counter("gatherings_extended_total",
	"Times that gathering went on because too few agents had come.")

// GatheringExtended: too few agents are present, so gathering continues.
type GatheringExtended struct{ PresentAgents, Minimum int }

// Describe implements observe.Event.
func (e GatheringExtended) Describe(d *observe.Description) {
	d.Inc(extendedGatherings)
	d.Set(eligibleAgents, float64(e.PresentAgents))
	d.Log(observe.Warn, "too few agents to begin a round", "agents", e.PresentAgents, "minimum", e.Minimum)
	d.Show(observe.Activity, fmt.Sprintf("waiting for agents: %d of %d are present", e.PresentAgents, e.Minimum))
}
