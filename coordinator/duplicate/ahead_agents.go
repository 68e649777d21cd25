package duplicate

import (
	"cmp"
	"fmt"
	"iter"
	"maps"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// aheadAgents contains the agents whose hello refers to a later announcement than the coordinator's own. These agents
// do not follow the coordinator.
type aheadAgents struct {
	// isConfirmedByAgent tells for each agent whether its last two hellos referred to a later announcement.
	isConfirmedByAgent  map[wire.AgentID]bool
	confirmedAgentCount int        // number of agents for which isConfirmedByAgent is true
	newestRun           wire.RunID // run of the latest announcement to which these hellos refer
	newestRound         wire.RoundID
}

// IsFromLaterPosition reports whether a message refers to a position that this coordinator has not reached. Either
// another coordinator has reached it, or the state folder is an older copy.
func (g *CoordinatorGuard) IsFromLaterPosition(h wire.Header) bool {
	return cmp.Or(cmp.Compare(h.Run, g.journaledRun), cmp.Compare(h.Round, g.presentAnnouncement.position.Round)) > 0
}

// CheckHelloPosition reports whether an agent's hello contains a later position. The caller should then repeat the
// current announcement, which the agent may have missed after the epoch was raised. If the next hello still contains a
// later position, the agent does not obey this coordinator.
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

// ForgetAheadAgent removes an agent from the agents that are ahead of this coordinator. The agent follows this
// coordinator again or is no longer listed.
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

// AheadAgents yields the agents whose last hello referred to a later announcement.
func (g *CoordinatorGuard) AheadAgents() iter.Seq[wire.AgentID] {
	return maps.Keys(g.aheadAgents.isConfirmedByAgent)
}

func (g *CoordinatorGuard) reportAheadAgents() {
	a := &g.aheadAgents
	g.cfg.Observer.Observe(AheadAgentsChanged{Agents: a.confirmedAgentCount, NewestRun: a.newestRun,
		NewestRound: a.newestRound})
}

var agentsAhead = observe.Gauge("agents_ahead",
	"Agents that ignore this coordinator because they have accepted an announcement with a later round.")

// AheadAgentsChanged reports the number of agents that are ahead of this coordinator. They obey a later announcement
// than its own.
type AheadAgentsChanged struct {
	Agents      int
	NewestRun   wire.RunID // run of the latest announcement that these agents follow
	NewestRound wire.RoundID
}

// Describe implements observe.Event.
func (e AheadAgentsChanged) Describe(d *observe.EventDescription) {
	const condition = "agents ahead"
	d.SetGauge(agentsAhead, float64(e.Agents))
	if e.Agents == 0 {
		d.Log(observe.Info, "no agents ignore this coordinator any longer")
		d.ResolveCondition(condition)
		return
	}
	d.Log(observe.Warn, "agents have accepted a later announcement and ignore this coordinator", "agents", e.Agents,
		"run", e.NewestRun, "round", e.NewestRound)
	d.RaiseCondition(condition,
		fmt.Sprintf("%d agents have accepted a later announcement (run %d, round %d) and ignore this coordinator: "+
			"another coordinator is running, or the state folder is an older copy", e.Agents, e.NewestRun,
			e.NewestRound),
		"to continue from this state folder, stop the coordinator and run `coordinator restore`")
}
