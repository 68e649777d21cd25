package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// SidelineReason is the reason why an agent is excluded from draws, used as a metric label.
type SidelineReason string

// Reasons for excluding an agent from draws.
const (
	SidelinedSilent       SidelineReason = "silent" // no update of the agent had arrived at the deadline
	SidelinedSpoiledModel SidelineReason = "fold"   // the agent's update made the model unusable
)

// SidelineReasons returns all reasons for excluding an agent, for use as metric labels.
func SidelineReasons() []SidelineReason {
	return []SidelineReason{SidelinedSilent, SidelinedSpoiledModel}
}

// SidelinedAgent is an agent that failed in a round and is excluded from draws up to LastSidelinedRound. Until then it
// does not count in the number K of eligible agents. The duration of the exclusion doubles with each consecutive
// failure; the failures are forgotten when an update of the agent is aggregated.
//
// SidelinedAgent is part of the journal record. Otherwise an agent could end its exclusion by causing the coordinator
// to restart.
type SidelinedAgent struct {
	Agent               wire.AgentID
	Reason              SidelineReason // reason of the agent's last failure
	ConsecutiveFailures int            `json:"Times"` // number of consecutive rounds in which the agent has failed
	// number of draws from which the agent was excluded after its last failure
	DrawsSatOut        int          `json:"Draws"`
	LastSidelinedRound wire.RoundID `json:"Until"` // last round from whose draw the agent is excluded
}

// maxTurnsSatOut is the maximum number of turns for which an agent is excluded from draws. A turn is the mean number of
// rounds between two draws of an agent.
const maxTurnsSatOut = 64

// roundsPerAgentDraw returns the mean number of rounds between two draws of an agent: K/L, rounded up.
func (c *CoordinatorMachine) roundsPerAgentDraw() int {
	return max(1, (c.record.EligibleAgents+c.cfg.Participants-1)/c.cfg.Participants)
}

// sidelineAgents excludes agents from draws. The exclusion lasts for one turn (see roundsPerAgentDraw) after the first
// failure, and doubles with each consecutive failure.
func (c *CoordinatorMachine) sidelineAgents(agents []wire.AgentID, reason SidelineReason) {
	for _, a := range slices.Sorted(slices.Values(agents)) {
		s := c.sidelinedAgentByID[a]
		s.Agent, s.Reason = a, reason
		s.ConsecutiveFailures++
		s.DrawsSatOut = min(1<<min(s.ConsecutiveFailures-1, 30), maxTurnsSatOut) * c.roundsPerAgentDraw()
		s.LastSidelinedRound = c.record.Round + wire.RoundID(s.DrawsSatOut)
		c.sidelinedAgentByID[a] = s
		c.setMemberSidelined(a, true)
		c.reportEvent(AgentSidelined{Agent: a, Round: c.record.Round, Reason: reason, DrawsSatOut: s.DrawsSatOut,
			LastSidelinedRound: s.LastSidelinedRound,
			EligibleAgents:     c.roster.eligibleMembers})
	}
}

// setMemberSidelined sets whether a known agent is excluded from draws. An unknown agent is marked at its next hello.
func (c *CoordinatorMachine) setMemberSidelined(a wire.AgentID, out bool) {
	if c.roster.memberByAgent[a] != nil {
		c.roster.changeMember(a, func(m *rosterMember) { m.isSidelined = out })
	}
}

// isSidelined reports whether an agent is excluded from the draw of the current round.
func (c *CoordinatorMachine) isSidelined(a wire.AgentID) bool {
	s, ok := c.sidelinedAgentByID[a]
	return ok && s.LastSidelinedRound >= c.record.Round
}

// forgetSidelinedAgent resets the failures of an agent whose update was aggregated.
func (c *CoordinatorMachine) forgetSidelinedAgent(a wire.AgentID) {
	if !c.isSidelined(a) {
		delete(c.sidelinedAgentByID, a)
	}
}

// awaitedSidelinedDraws returns the number of draws whose updates the coordinator awaits from agents that failed
// earlier. The result satOut is the longest exclusion of these agents, as a number of draws, without the limit
// maxTurnsSatOut.
func (c *CoordinatorMachine) awaitedSidelinedDraws() (draws int, satOut float64) {
	for a, s := range c.sidelinedAgentByID {
		if p := c.progress.progressByAgent[a]; p != nil && (p.state == stateInvited || p.state == stateJoined) &&
			p.DrawCount > 0 {
			draws += p.DrawCount
			satOut = max(satOut, math.Ldexp(float64(c.roundsPerAgentDraw()), s.ConsecutiveFailures-1))
		}
	}
	return draws, satOut
}

// readmitDueAgents readmits the agents whose exclusion ended with the previous round, and deletes old failures.
func (c *CoordinatorMachine) readmitDueAgents() {
	for _, a := range slices.Sorted(maps.Keys(c.sidelinedAgentByID)) {
		switch s := c.sidelinedAgentByID[a]; {
		case s.LastSidelinedRound+1 == c.record.Round:
			c.readmitAgent(a, false)
		case s.LastSidelinedRound+wire.RoundID(maxTurnsSatOut*s.DrawsSatOut) < c.record.Round:
			delete(c.sidelinedAgentByID, a)
		}
	}
}

// readmitAgentsEarly readmits the agents whose exclusion ends soonest if fewer agents may be drawn than a round needs.
// Otherwise excluded agents could prevent all further rounds.
func (c *CoordinatorMachine) readmitAgentsEarly() {
	missing := c.cfg.Gather.MinAgents - c.roster.eligibleMembers
	if missing <= 0 {
		return
	}
	var sitting []SidelinedAgent
	for a, s := range c.sidelinedAgentByID {
		if m := c.roster.memberByAgent[a]; m != nil && m.isSidelined && m.isPresentAndFit() {
			sitting = append(sitting, s)
		}
	}
	sort.Slice(sitting, func(i, j int) bool {
		a, b := &sitting[i], &sitting[j]
		return cmp.Or(cmp.Compare(a.LastSidelinedRound, b.LastSidelinedRound), cmp.Compare(a.Agent, b.Agent)) < 0
	})
	for _, s := range sitting[:min(missing, len(sitting))] {
		s.LastSidelinedRound = c.record.Round - 1
		c.sidelinedAgentByID[s.Agent] = s
		c.readmitAgent(s.Agent, true)
	}
}

func (c *CoordinatorMachine) readmitAgent(a wire.AgentID, early bool) {
	c.setMemberSidelined(a, false)
	c.reportEvent(AgentReadmitted{Agent: a, Round: c.record.Round, ReadmittedEarly: early,
		EligibleAgents: c.roster.eligibleMembers})
}

// sidelinedAgentsFromRound returns the agents that are excluded at least through round from, in id order.
func (c *CoordinatorMachine) sidelinedAgentsFromRound(from wire.RoundID) (list []SidelinedAgent) {
	for _, a := range slices.Sorted(maps.Keys(c.sidelinedAgentByID)) {
		if s := c.sidelinedAgentByID[a]; s.LastSidelinedRound >= from {
			list = append(list, s)
		}
	}
	return list
}

var sidelineCountMetric = observe.CounterByLabel("agents_sidelined_total",
	"Times that an agent was excluded from the next rounds, by reason: silent (no update by the deadline) or fold "+
		"(its update made the model unusable).",
	"reason", observe.NamesAsStrings(SidelineReasons()))

// AgentSidelined is emitted when an agent failed in a round and is excluded for some rounds: it is neither drawn nor
// counted in the number K of eligible agents.
type AgentSidelined struct {
	Agent              wire.AgentID
	Round              wire.RoundID
	Reason             SidelineReason
	DrawsSatOut        int          // number of draws from which the agent is excluded
	LastSidelinedRound wire.RoundID // last round from whose draw the agent is excluded
	EligibleAgents     int          // number K of eligible agents, without this one
}

// Describe implements observe.Event.
func (e AgentSidelined) Describe(d *observe.EventDescription) {
	d.IncCounter(sidelineCountMetric, string(e.Reason))
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	d.Log(observe.Warn, "agent failed in the round and is excluded from the next rounds", "agent", e.Agent, "round",
		e.Round,
		"reason", e.Reason, "draws", e.DrawsSatOut, "until_round", e.LastSidelinedRound, "agents", e.EligibleAgents)
}

var earlyReadmissionsMetric = observe.Counter("agents_readmitted_early_total",
	"Excluded agents that were readmitted early because fewer than gather.minimum other agents were present.")

// AgentReadmitted is emitted when an excluded agent may be drawn again.
type AgentReadmitted struct {
	Agent           wire.AgentID
	Round           wire.RoundID // first round in which the agent may be drawn again
	ReadmittedEarly bool         // whether it is readmitted because fewer than gather.minimum other agents are present
	EligibleAgents  int          // number K of eligible agents, including this one if present
}

// Describe implements observe.Event.
func (e AgentReadmitted) Describe(d *observe.EventDescription) {
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	if e.ReadmittedEarly {
		d.IncCounter(earlyReadmissionsMetric)
		d.Log(observe.Warn, "excluded agent readmitted early because too few other agents are present", "agent",
			e.Agent,
			"round", e.Round, "agents", e.EligibleAgents)
		return
	}
	d.Log(observe.Info, "agent readmitted", "agent", e.Agent, "round", e.Round, "agents",
		e.EligibleAgents)
}
