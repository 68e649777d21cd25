package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// revoked forgets agents that may no longer take part, and ends their part in the open round. An update of theirs that
// is accepted already stays in it: nothing that is accepted is lost.
func (c *Coordinator) revoked(now time.Time, e Revoked) {
	gone := slices.Sorted(slices.Values(e.Agents))
	c.meshing = slices.DeleteFunc(c.meshing, func(p Participant) bool {
		_, is := slices.BinarySearch(gone, p.Agent)
		return is
	})
	for _, a := range gone {
		m := c.roster.members[a]
		c.roster.remove(a)
		delete(c.sidelined, a)
		delete(c.rolling.heard, a)
		c.rec.Stop.Left(a)
		if m != nil && m.present {
			c.report(AgentLeft{a, LeftRevoked, c.roster.drawn})
		}
		_, inBlock := slices.BinarySearchFunc(c.rec.Participants, a, byAgent)
		c.remesh = c.remesh || inBlock && c.rec.Plan.Endless
		if p := c.peers[a]; p != nil && c.in(CoordinatorCollecting) && p.state < peerAccepted {
			c.leave(now, p)
		}
	}
}

// leave ends the part of a participant that is revoked.
func (c *Coordinator) leave(now time.Time, p *peer) {
	c.move(p, peerOut)
	if !p.offered.IsZero() {
		c.refuse(p.Agent, c.rec.Run, c.rec.Round, p.offered, wire.RefuseNotSelected)
	}
	c.redraw(now, p)
	c.settle(now)
}

// known keeps the edges between participants: one of them may have been revoked while the edges were made.
func known(edges []Edge, participants []Participant) []Edge {
	in := func(a wire.AgentID) bool {
		_, found := slices.BinarySearchFunc(participants, a, byAgent)
		return found
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e Edge) bool { return !in(e.A) || !in(e.B) })
}
