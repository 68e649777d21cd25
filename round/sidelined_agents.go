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

// SidelineReason tells why an agent is not drawn for a while. It is a metric's label.
type SidelineReason string

// The reasons for not drawing an agent for a while.
const (
	SidelinedSilent       SidelineReason = "silent" // it was drawn, and had not sent its update at the deadline
	SidelinedSpoiledModel SidelineReason = "fold"   // its update spoiled the fold
)

// SidelineReasons returns all reasons, for closed label sets.
func SidelineReasons() []SidelineReason {
	return []SidelineReason{SidelinedSilent, SidelinedSpoiledModel}
}

// SidelinedAgent is an agent that spoiled a round. It sits out: it is not drawn and not counted in K up to a round,
// longer with each time. The count ends with the first update of the agent that is folded.
//
// It is in the record, since a restart of the coordinator would otherwise be an amnesty, and a liar may cause restarts.
type SidelinedAgent struct {
	Agent               wire.AgentID
	Reason              SidelineReason // of the last time
	ConsecutiveFailures int            `json:"Times"` // in a row
	DrawsSatOut         int            `json:"Draws"` // that it sat out the last time
	LastSidelinedRound  wire.RoundID   `json:"Until"` // the last round that is drawn without it
}

// maxTurnsSatOut bounds how many of its turns an agent sits out.
const maxTurnsSatOut = 64

// roundsPerAgentDraw returns how many draws there are for one of an agent: K/L, rounded up.
func (c *CoordinatorMachine) roundsPerAgentDraw() int {
	return max(1, (c.record.EligibleAgents+c.cfg.Participants-1)/c.cfg.Participants)
}

// sidelineAgents lets agents sit out: for one turn, and for twice as many each time it happens again.
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

// setMemberSidelined marks a member, if there is one: who says hello later is marked then.
func (c *CoordinatorMachine) setMemberSidelined(a wire.AgentID, out bool) {
	if c.roster.memberByAgent[a] != nil {
		c.roster.changeMember(a, func(m *rosterMember) { m.isSidelined = out })
	}
}

// isSidelined reports whether an agent is not drawn in the present round.
func (c *CoordinatorMachine) isSidelined(a wire.AgentID) bool {
	s, ok := c.sidelinedAgentByID[a]
	return ok && s.LastSidelinedRound >= c.record.Round
}

// forgetSidelinedAgent ends the count of an agent whose update was folded.
func (c *CoordinatorMachine) forgetSidelinedAgent(a wire.AgentID) {
	if !c.isSidelined(a) {
		delete(c.sidelinedAgentByID, a)
	}
}

// awaitedSidelinedDraws counts the draws of those that were sidelined and are awaited. satOut is the most draws that
// one of them would have sat out if that were not bounded.
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

// readmitDueAgents ends the time of those that have sat out the rounds before the present one, and forgets those of
// long ago.
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

// readmitAgentsEarly ends the time of those whose time is nearest to over, while fewer agents may be drawn than a round
// needs: a federation does not stand still because agents sit out.
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

// sidelinedAgentsFromRound returns, in id order, those whose time ends with round from, or later.
func (c *CoordinatorMachine) sidelinedAgentsFromRound(from wire.RoundID) (list []SidelinedAgent) {
	for _, a := range slices.Sorted(maps.Keys(c.sidelinedAgentByID)) {
		if s := c.sidelinedAgentByID[a]; s.LastSidelinedRound >= from {
			list = append(list, s)
		}
	}
	return list
}

var sidelineCountMetric = observe.CounterByLabel("agents_sidelined_total",
	"Times that an agent was excluded from the next draws. Silent: sent no update by the deadline; fold: spoiled the "+
		"model.",
	"reason", observe.NamesAsStrings(SidelineReasons()))

// AgentSidelined: an agent failed in a round. It is not drawn for a while, nor counted in K.
type AgentSidelined struct {
	Agent              wire.AgentID
	Round              wire.RoundID
	Reason             SidelineReason
	DrawsSatOut        int          // number of draws without the agent
	LastSidelinedRound wire.RoundID // the last round that is drawn without the agent
	EligibleAgents     int          // K without the agent
}

// Describe implements observe.Event.
func (e AgentSidelined) Describe(d *observe.EventDescription) {
	d.IncCounter(sidelineCountMetric, string(e.Reason))
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	d.Log(observe.Warn, "agent failed in the round and sits out the next draws", "agent", e.Agent, "round",
		e.Round,
		"reason", e.Reason, "draws", e.DrawsSatOut, "until_round", e.LastSidelinedRound, "agents", e.EligibleAgents)
}

var earlyReadmissionsMetric = observe.Counter("agents_readmitted_early_total",
	"Sidelined agents drawn early because fewer than gather.minimum others were present.")

// AgentReadmitted: an agent that sat out may be drawn again.
type AgentReadmitted struct {
	Agent           wire.AgentID
	Round           wire.RoundID // the first round that is drawn with the agent
	ReadmittedEarly bool         // because fewer than gather.minimum other agents are present
	EligibleAgents  int          // K with the agent, if it is present
}

// Describe implements observe.Event.
func (e AgentReadmitted) Describe(d *observe.EventDescription) {
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	if e.ReadmittedEarly {
		d.IncCounter(earlyReadmissionsMetric)
		d.Log(observe.Warn, "agent may be drawn again early, because too few others are present", "agent",
			e.Agent,
			"round", e.Round, "agents", e.EligibleAgents)
		return
	}
	d.Log(observe.Info, "agent may be drawn again", "agent", e.Agent, "round", e.Round, "agents",
		e.EligibleAgents)
}
