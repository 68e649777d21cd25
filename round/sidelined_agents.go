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
	SidelinedSilent SidelineReason = "silent" // it was drawn, and had not sent its update at the deadline
	SidelinedFold   SidelineReason = "fold"   // its update spoiled the fold
)

// SidelineReasons returns all reasons, for closed label sets.
func SidelineReasons() []SidelineReason { return []SidelineReason{SidelinedSilent, SidelinedFold} }

// Sidelined is an agent that spoiled a round. It sits out: it is not drawn and not counted in K up to a round, longer
// with each time. The count ends with the first update of the agent that is folded.
//
// It is in the record, since a restart of the coordinator would otherwise be an amnesty, and a liar may cause restarts.
type Sidelined struct {
	Agent  wire.AgentID
	Reason SidelineReason // of the last time
	Times  int            // in a row
	Draws  int            // that it sat out the last time
	Until  wire.RoundID   // the last round that is drawn without it
}

// mostTurns bounds how many of its turns an agent sits out.
const mostTurns = 64

// roundsPerAgentDraw returns how many draws there are for one of an agent: K/L, rounded up.
func (c *Coordinator) roundsPerAgentDraw() int {
	return max(1, (c.rec.Agents+c.cfg.Participants-1)/c.cfg.Participants)
}

// sideline lets agents sit out: for one turn, and for twice as many each time it happens again.
func (c *Coordinator) sideline(agents []wire.AgentID, reason SidelineReason) {
	for _, a := range slices.Sorted(slices.Values(agents)) {
		s := c.sidelined[a]
		s.Agent, s.Reason = a, reason
		s.Times++
		s.Draws = min(1<<min(s.Times-1, 30), mostTurns) * c.roundsPerAgentDraw()
		s.Until = c.rec.Round + wire.RoundID(s.Draws)
		c.sidelined[a] = s
		c.markSidelined(a, true)
		c.report(AgentSidelined{Agent: a, Round: c.rec.Round, Reason: reason, DrawsSatOut: s.Draws,
			LastSidelinedRound: s.Until,
			EligibleAgents:     c.roster.eligibleMembers})
	}
}

// markSidelined marks a member, if there is one: who says hello later is marked then.
func (c *Coordinator) markSidelined(a wire.AgentID, out bool) {
	if c.roster.members[a] != nil {
		c.roster.changeMember(a, func(m *rosterMember) { m.sidelined = out })
	}
}

// isSidelined reports whether an agent is not drawn in the present round.
func (c *Coordinator) isSidelined(a wire.AgentID) bool {
	s, ok := c.sidelined[a]
	return ok && s.Until >= c.rec.Round
}

// clearSideline ends the count of an agent whose update was folded.
func (c *Coordinator) clearSideline(a wire.AgentID) {
	if !c.isSidelined(a) {
		delete(c.sidelined, a)
	}
}

// awaitedSidelinedDraws counts the draws of those that were sidelined and are awaited. satOut is the most draws that
// one of them would have sat out if that were not bounded.
func (c *Coordinator) awaitedSidelinedDraws() (draws int, satOut float64) {
	for a, s := range c.sidelined {
		if p := c.progress.byAgent[a]; p != nil && (p.state == peerInvited || p.state == peerJoined) && p.Times > 0 {
			draws += p.Times
			satOut = max(satOut, math.Ldexp(float64(c.roundsPerAgentDraw()), s.Times-1))
		}
	}
	return draws, satOut
}

// readmitDue ends the time of those that have sat out the rounds before the present one, and forgets those of long ago.
func (c *Coordinator) readmitDue() {
	for _, a := range slices.Sorted(maps.Keys(c.sidelined)) {
		switch s := c.sidelined[a]; {
		case s.Until+1 == c.rec.Round:
			c.readmitAgent(a, false)
		case s.Until+wire.RoundID(mostTurns*s.Draws) < c.rec.Round:
			delete(c.sidelined, a)
		}
	}
}

// readmitEarly ends the time of those whose time is nearest to over, while fewer agents may be drawn than a round
// needs: a federation does not stand still because agents sit out.
func (c *Coordinator) readmitEarly() {
	missing := c.cfg.Gather.Minimum - c.roster.eligibleMembers
	if missing <= 0 {
		return
	}
	var sitting []Sidelined
	for a, s := range c.sidelined {
		if m := c.roster.members[a]; m != nil && m.sidelined && m.isAvailable() {
			sitting = append(sitting, s)
		}
	}
	sort.Slice(sitting, func(i, j int) bool {
		a, b := &sitting[i], &sitting[j]
		return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Agent, b.Agent)) < 0
	})
	for _, s := range sitting[:min(missing, len(sitting))] {
		s.Until = c.rec.Round - 1
		c.sidelined[s.Agent] = s
		c.readmitAgent(s.Agent, true)
	}
}

func (c *Coordinator) readmitAgent(a wire.AgentID, early bool) {
	c.markSidelined(a, false)
	c.report(AgentReadmitted{Agent: a, Round: c.rec.Round, ReadmittedEarly: early,
		EligibleAgents: c.roster.eligibleMembers})
}

// sidelinedList returns, in id order, those whose time ends with round from, or later.
func (c *Coordinator) sidelinedList(from wire.RoundID) (list []Sidelined) {
	for _, a := range slices.Sorted(maps.Keys(c.sidelined)) {
		if s := c.sidelined[a]; s.Until >= from {
			list = append(list, s)
		}
	}
	return list
}

var agentsSidelined = observe.CounterByLabel("agents_sidelined_total",
	"Times that an agent began to sit out the next draws: silent ones were drawn and had sent no update at "+
		"the deadline, those of the fold spoiled the model.",
	"reason", observe.Strings(SidelineReasons()))

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
func (e AgentSidelined) Describe(d *observe.Description) {
	d.Inc(agentsSidelined, string(e.Reason))
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	d.Log(observe.Warn, "agent failed in the round and sits out the next draws", "agent", e.Agent, "round", e.Round,
		"reason", e.Reason, "draws", e.DrawsSatOut, "until_round", e.LastSidelinedRound, "agents", e.EligibleAgents)
}

var earlyReadmissions = observe.Counter("agents_readmitted_early_total",
	"Agents that were to sit out longer, and were drawn since fewer than gather.minimum others were there.")

// AgentReadmitted: an agent that sat out may be drawn again.
type AgentReadmitted struct {
	Agent           wire.AgentID
	Round           wire.RoundID // the first round that is drawn with the agent
	ReadmittedEarly bool         // because fewer than gather.minimum other agents are present
	EligibleAgents  int          // K with the agent, if it is present
}

// Describe implements observe.Event.
func (e AgentReadmitted) Describe(d *observe.Description) {
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	if e.ReadmittedEarly {
		d.Inc(earlyReadmissions)
		d.Log(observe.Warn, "agent may be drawn again early, because too few others are present", "agent", e.Agent,
			"round", e.Round, "agents", e.EligibleAgents)
		return
	}
	d.Log(observe.Info, "agent may be drawn again", "agent", e.Agent, "round", e.Round, "agents", e.EligibleAgents)
}
