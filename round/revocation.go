package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleAgentsRevoked forgets agents that may no longer take part, and ends their part in the open round. An update of
// theirs that is accepted already stays in it: nothing that is accepted is lost.
func (c *Coordinator) handleAgentsRevoked(now time.Time, e AgentsRevoked) {
	gone := slices.Sorted(slices.Values(e.Agents))
	c.mixing.pendingParticipants = slices.DeleteFunc(c.mixing.pendingParticipants, func(p Participant) bool {
		_, is := slices.BinarySearch(gone, p.Agent)
		return is
	})
	for _, a := range gone {
		m := c.roster.members[a]
		c.roster.remove(a)
		delete(c.sidelined, a)
		delete(c.rolloutTrial.residualsByAgent, a)
		c.rec.Stop.RemoveAgent(a)
		if m != nil && m.present {
			c.report(AgentLeft{a, LeftRevoked, c.roster.eligibleMembers})
		}
		_, inBlock := slices.BinarySearchFunc(c.rec.Participants, a, compareToAgentID)
		c.mixing.edgesMustChange = c.mixing.edgesMustChange || inBlock && c.rec.Plan.Endless
		if p := c.progress.byAgent[a]; p != nil && c.isInPhase(CoordinatorCollecting) && p.state < peerAccepted {
			c.endParticipation(now, p)
		}
	}
}

// endParticipation ends the part of a participant that is revoked.
func (c *Coordinator) endParticipation(now time.Time, p *participantProgress) {
	c.changeState(p, peerOut)
	if !p.offeredDigest.IsZero() {
		c.refuse(p.Agent, c.rec.Run, c.rec.Round, p.offeredDigest, wire.RefuseNotSelected)
	}
	c.reassignDraws(now, p)
	c.closeIfReady(now)
}

// edgesAmong keeps the edges between participants: one of them may have been revoked while the edges were made.
func edgesAmong(edges []Edge, participants []Participant) []Edge {
	in := func(a wire.AgentID) bool {
		_, found := slices.BinarySearchFunc(participants, a, compareToAgentID)
		return found
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e Edge) bool { return !in(e.A) || !in(e.B) })
}
