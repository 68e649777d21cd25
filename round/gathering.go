package round

import (
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// gather asks all agents for a hello.
func (c *Coordinator) gather(now time.Time) {
	c.enter(now, CoordinatorGathering)
	c.asked = true
	c.peers = nil
	c.forgetParticipants()
	c.wakeAt = now.Add(c.cfg.Gather.Within)
	c.journal()
	c.announce(wire.PhaseGathering)
}

// gathered opens the round when enough agents are there: at once with the
// target, at the end of the window with the minimum. While the broker is out
// of reach the window stays open.
func (c *Coordinator) gathered(now time.Time, due bool) {
	k := len(c.eligible())
	if !now.Before(c.retryAt) {
		c.retryAt = time.Time{}
	}
	switch target := c.cfg.Gather.Target; {
	case !c.linkUp:
		if due {
			c.wakeAt = now.Add(c.cfg.Gather.Within)
		}
	case now.Before(c.retryAt):
		if due {
			c.wakeAt = c.retryAt
		}
	case target > 0 && k >= target, due && k >= c.cfg.Gather.Minimum:
		c.open(now)
	case due:
		c.report(GatheringExtended{Agents: k, Minimum: c.cfg.Gather.Minimum})
		c.rec.Attempt++
		c.gather(now)
	}
}

// next goes on to the next round: straight to its opening while enough agents
// are known to be there. A process that took up a round knows only those that
// happened to say hello since, so it asks first.
func (c *Coordinator) next(now time.Time) {
	c.advance()
	if c.linkUp && c.asked && len(c.eligible()) >= c.cfg.Gather.Minimum {
		c.open(now)
	} else {
		c.gather(now)
	}
}

// eligible returns, in id order, the agents that may be drawn: present and fit.
func (c *Coordinator) eligible() []wire.AgentID {
	var ids []wire.AgentID
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if m := c.members[id]; m.present && m.unfit == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// hello takes note of the agent, and answers whatever the phase is.
func (c *Coordinator) hello(now time.Time, e HelloCame) {
	m := c.members[e.Agent]
	if m == nil {
		m = &member{}
		c.members[e.Agent] = m
	}
	if e.Hello.Unfit == 0 && e.Hello.Samples == 0 {
		e.Hello.Unfit = wire.DeclineTooFewRows // nothing to learn from, and no weight
	}
	news := !m.present || m.boot != e.Boot || m.unfit != e.Hello.Unfit
	*m = member{
		boot: e.Boot, present: true, unfit: e.Hello.Unfit, samples: e.Hello.Samples, peerKey: e.Hello.PeerKey, place: e.Hello.Location,
		neighbors: e.Hello.Neighbors,
	}
	switch {
	case news && m.unfit != 0:
		c.report(AgentUnfit{e.Agent, m.unfit, len(c.eligible())})
	case news:
		c.report(AgentCounted{e.Agent, m.samples, len(c.eligible())})
	}
	if p := c.peers[e.Agent]; p != nil && (c.in(CoordinatorCollecting) || p.state == peerAccepted) {
		c.helloOfPeer(now, p, m.unfit)
		return
	}
	place := wire.PlaceNotSelected
	if c.in(CoordinatorGathering) && m.unfit == 0 {
		place = wire.PlaceCounted
	}
	c.do(Stand{e.Agent, place})
}

// helloOfPeer answers a participant that has restarted or lost its thread.
func (c *Coordinator) helloOfPeer(now time.Time, p *peer, unfit wire.DeclineReason) {
	switch {
	case p.state == peerAccepted:
		c.do(Accept{p.Agent, c.rec.Round, p.Accepted})
	case p.state == peerOut:
		c.do(Stand{p.Agent, wire.PlaceNotSelected})
	case unfit != 0:
		c.do(Stand{p.Agent, wire.PlaceNotSelected})
		c.dropOut(now, p, unfit)
	default:
		c.invite(now, p)
	}
}

// presence believes a leave and nothing else: an agent that is there says hello.
func (c *Coordinator) presence(now time.Time, e PresenceCame) {
	if m := c.members[e.Agent]; m != nil && m.present && e.State != wire.StateOnline {
		m.present = false
		why := LeftLost
		if e.State == wire.StateOffline {
			why = LeftOffline
		}
		c.report(AgentLeft{e.Agent, why, len(c.eligible())})
		if p := c.peers[e.Agent]; p != nil && c.in(CoordinatorCollecting) && p.state < peerAccepted && p.Times > 0 && c.mixes() {
			c.redraw(now, p)
			c.settle(now)
		}
	}
}
