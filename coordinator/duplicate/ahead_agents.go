package duplicate

import (
	"cmp"
	"fmt"
	"iter"
	"maps"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// aheadAgents is the agents whose hellos name a later position than the coordinator's: they do not obey it.
type aheadAgents struct {
	isConfirmedByAgent  map[wire.AgentID]bool // whether an agent has named a later position twice in a row
	confirmedAgentCount int                   // number of those
	newestRun           wire.RunID            // the newest position that was named
	newestRound         wire.RoundID
}

// IsFromLaterPosition reports whether a message is about a position that this coordinator has not reached: another
// coordinator has, or the state folder is an older copy.
func (g *CoordinatorGuard) IsFromLaterPosition(h wire.Header) bool {
	return cmp.Or(cmp.Compare(h.Run, g.journaledRun), cmp.Compare(h.Round, g.presentAnnouncement.position.Round)) > 0
}

// CheckHelloPosition reports whether an agent's hello names a later position: then the agent should be told the present
// announcement. An agent that has missed the present announcement, after the epoch was raised, reads it then; an agent
// that names a later position again does not obey this coordinator.
func (g *CoordinatorGuard) CheckHelloPosition(agent wire.AgentID, h wire.Header) (isAhead bool) {
	if !g.IsFromLaterPosition(h) {
		g.ForgetAheadAgent(agent)
		return false
	}
	a := &g.aheadAgents
	if cmp.Or(cmp.Compare(h.Run, a.newestRun), cmp.Compare(h.Round, a.newestRound)) > 0 {
		a.newestRun, a.newestRound = h.Run, h.Round
	}
	confirmed, known := a.isConfirmedByAgent[agent]
	a.isConfirmedByAgent[agent] = known
	if known && !confirmed {
		a.confirmedAgentCount++
		g.reportAheadAgents()
	}
	return true
}

// ForgetAheadAgent removes an agent from those that are ahead: it obeys this coordinator, or is no longer listed.
func (g *CoordinatorGuard) ForgetAheadAgent(agent wire.AgentID) {
	a := &g.aheadAgents
	confirmed := a.isConfirmedByAgent[agent]
	if delete(a.isConfirmedByAgent, agent); confirmed {
		a.confirmedAgentCount--
		g.reportAheadAgents()
	}
	if len(a.isConfirmedByAgent) == 0 {
		a.newestRun, a.newestRound = 0, 0
	}
}

// AheadAgents yields the agents whose last hello named a later position.
func (g *CoordinatorGuard) AheadAgents() iter.Seq[wire.AgentID] {
	return maps.Keys(g.aheadAgents.isConfirmedByAgent)
}

func (g *CoordinatorGuard) reportAheadAgents() {
	a := &g.aheadAgents
	g.cfg.Observer.Observe(AheadAgentsChanged{Agents: a.confirmedAgentCount, NewestRun: a.newestRun,
		NewestRound: a.newestRound})
}

var agentsAhead = observe.Gauge("agents_ahead",
	"Agents that ignore this coordinator because they have accepted a later announcement.")

// AheadAgentsChanged: the number of agents that are ahead has changed. They obey a later announcement than this
// coordinator's, so they do not obey this coordinator.
type AheadAgentsChanged struct {
	Agents      int
	NewestRun   wire.RunID // of the latest announcement that one of them obeys
	NewestRound wire.RoundID
}

// Describe implements observe.Event.
func (e AheadAgentsChanged) Describe(d *observe.EventDescription) {
	const condition = "agents ahead"
	d.SetGauge(agentsAhead, float64(e.Agents))
	if e.Agents == 0 {
		d.Log(observe.Info, "no agent is ahead of this coordinator any more")
		d.ResolveCondition(condition)
		return
	}
	d.Log(observe.Warn, "agents are ahead of this coordinator and do not obey it", "agents", e.Agents,
		"run", e.NewestRun, "round", e.NewestRound)
	d.RaiseCondition(condition,
		fmt.Sprintf("%d agents are ahead (run %d, round %d) and do not obey this coordinator: another "+
			"coordinator leads them, or the state folder is an older copy", e.Agents, e.NewestRun, e.NewestRound),
		"to continue from this copy, stop the coordinator and run `coordinator restore`")
}
