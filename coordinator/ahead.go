package coordinator

import (
	"cmp"

	"github.com/fedmesh/fedmesh/wire"
)

// ahead is the agents whose hellos name a later place than the coordinator's: they do not obey it.
type ahead struct {
	agents map[wire.AgentID]bool // whether twice in a row
	sure   int                   // of those
	run    wire.RunID            // the newest place that was named
	round  wire.RoundID
}

// isLater reports whether a message is about a place that the coordinator has not come to: another one has, or its
// state folder is an older copy.
func (c *Coordinator) isLater(h wire.Header) bool {
	return cmp.Or(cmp.Compare(h.Run, c.runID), cmp.Compare(h.Round, c.present())) > 0
}

// isAhead reports whether an agent's hello names a later place, and answers it then. An agent that has not read the
// present announcement, after the epoch was raised, reads it; an agent that names such a place again does not obey it.
func (c *Coordinator) isAhead(agent wire.AgentID, h wire.Header) bool {
	if !c.isLater(h) {
		c.forgetAhead(agent)
		return false
	}
	a := &c.ahead
	if cmp.Or(cmp.Compare(h.Run, a.run), cmp.Compare(h.Round, a.round)) > 0 {
		a.run, a.round = h.Run, h.Round
	}
	sure, known := a.agents[agent]
	a.agents[agent] = known
	if known && !sure {
		a.sure++
		c.tellAhead()
	}
	c.stand(agent)
	return true
}

// stand names the present announcement to an agent that names another one: it reads it again.
func (c *Coordinator) stand(agent wire.AgentID) {
	m := wire.Standing{Announcement: c.publisher.digest, Place: wire.PlaceNotSelected}
	c.tell(agent, wire.TypeStanding, c.runID, c.present(), m.Body())
}

// forgetAhead takes an agent out of the count: it obeys, or is no longer listed.
func (c *Coordinator) forgetAhead(agent wire.AgentID) {
	a := &c.ahead
	sure := a.agents[agent]
	if delete(a.agents, agent); sure {
		a.sure--
		c.tellAhead()
	}
	if len(a.agents) == 0 {
		a.run, a.round = 0, 0
	}
}

func (c *Coordinator) tellAhead() {
	c.cfg.Observer.Observe(AgentsAhead{Agents: c.ahead.sure, Run: c.ahead.run, Round: c.ahead.round})
}
