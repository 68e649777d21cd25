package coordinator

import (
	"cmp"
	"fmt"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// aheadAgentTracker is the agents whose hellos name a later place than the coordinator's: they do not obey it.
type aheadAgentTracker struct {
	confirmedAheadByAgent map[wire.AgentID]bool // whether twice in a row
	confirmedAheadAgents  int                   // of those
	newestRun             wire.RunID            // the newest place that was named
	newestRound           wire.RoundID
}

// isFromLaterRound reports whether a message is about a place that the coordinator has not come to: another one has, or
// its state folder is an older copy.
func (c *Coordinator) isFromLaterRound(h wire.Header) bool {
	return cmp.Or(cmp.Compare(h.Run, c.runID), cmp.Compare(h.Round, c.currentRound())) > 0
}

// isAgentAhead reports whether an agent's hello names a later place, and answers it then. An agent that has not read
// the present announcement, after the epoch was raised, reads it; an agent that names such a place again does not obey
// it.
func (c *Coordinator) isAgentAhead(agent wire.AgentID, h wire.Header) bool {
	if !c.isFromLaterRound(h) {
		c.forgetAhead(agent)
		return false
	}
	a := &c.aheadAgents
	if cmp.Or(cmp.Compare(h.Run, a.newestRun), cmp.Compare(h.Round, a.newestRound)) > 0 {
		a.newestRun, a.newestRound = h.Run, h.Round
	}
	sure, known := a.confirmedAheadByAgent[agent]
	a.confirmedAheadByAgent[agent] = known
	if known && !sure {
		a.confirmedAheadAgents++
		c.reportAheadAgents()
	}
	c.sendCurrentPosition(agent)
	return true
}

// sendCurrentPosition names the present announcement to an agent that names another one: it reads it again.
func (c *Coordinator) sendCurrentPosition(agent wire.AgentID) {
	m := wire.HelloAnswer{Announcement: c.publisher.Digest(), Standing: wire.PlaceNotSelected}
	c.sendToAgent(agent, wire.TypeHelloAnswer, c.runID, c.currentRound(), m.Body())
}

// forgetAhead takes an agent out of the count: it obeys, or is no longer listed.
func (c *Coordinator) forgetAhead(agent wire.AgentID) {
	a := &c.aheadAgents
	sure := a.confirmedAheadByAgent[agent]
	if delete(a.confirmedAheadByAgent, agent); sure {
		a.confirmedAheadAgents--
		c.reportAheadAgents()
	}
	if len(a.confirmedAheadByAgent) == 0 {
		a.newestRun, a.newestRound = 0, 0
	}
}

func (c *Coordinator) reportAheadAgents() {
	c.cfg.Observer.Observe(AgentsAhead{Agents: c.aheadAgents.confirmedAheadAgents, NewestRun: c.aheadAgents.newestRun,
		NewestRound: c.aheadAgents.newestRound})
}

var aheadAgents = observe.Gauge("agents_ahead",
	"Agents that obey a later place than this coordinator's, and so do not obey it.")

// AgentsAhead: the number of agents that are ahead has changed. They obey a later announcement than this coordinator's,
// so they do not obey this coordinator.
type AgentsAhead struct {
	Agents      int
	NewestRun   wire.RunID // of the latest announcement that one of them obeys
	NewestRound wire.RoundID
}

// Describe implements observe.Event.
func (e AgentsAhead) Describe(d *observe.Description) {
	const condition = "agents ahead"
	d.Set(aheadAgents, float64(e.Agents))
	if e.Agents == 0 {
		d.Log(observe.Info, "no agent is ahead of this coordinator any more")
		d.Resolve(condition)
		return
	}
	d.Log(observe.Warn, "agents are ahead of this coordinator and do not obey it", "agents", e.Agents,
		"run", e.NewestRun, "round", e.NewestRound)
	d.Fail(condition, fmt.Sprintf("%d agents are ahead (run %d, round %d) and do not obey this coordinator: another "+
		"coordinator leads them, or the state folder is an older copy", e.Agents, e.NewestRun, e.NewestRound),
		"to continue from this copy, stop the coordinator and run `coordinator restore`")
}
