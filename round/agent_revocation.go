package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleAgentsRevoked removes revoked agents from the roster and ends their participation in the open round. Updates of
// these agents that were already accepted stay in the round.
func (c *CoordinatorMachine) handleAgentsRevoked(now time.Time, e AgentsRevoked) {
	gone := slices.Sorted(slices.Values(e.Agents))
	c.mixing.pendingParticipants = slices.DeleteFunc(c.mixing.pendingParticipants, func(p Participant) bool {
		_, is := slices.BinarySearch(gone, p.Agent)
		return is
	})
	for _, a := range gone {
		m := c.roster.memberByAgent[a]
		c.roster.removeMember(a)
		delete(c.sidelinedAgentByID, a)
		delete(c.rolloutTrial.residualsByAgent, a)
		c.record.StopState.RemoveAgent(a)
		if m != nil && m.isPresent {
			c.reportEvent(AgentLeft{a, LeftRevoked, c.roster.eligibleMembers})
		}
		_, inBlock := slices.BinarySearchFunc(c.record.Participants, a, compareParticipantToID)
		c.mixing.edgesMustChange = c.mixing.edgesMustChange || inBlock && c.record.Plan.HasEndlessBlocks
		if p := c.progress.progressByAgent[a]; p != nil && c.isInPhase(CoordinatorCollecting) &&
			p.state < stateAccepted {
			c.endRevokedParticipation(now, p)
		}
	}
}

// endRevokedParticipation ends the participation of a revoked agent in the open round.
func (c *CoordinatorMachine) endRevokedParticipation(now time.Time, p *participantProgress) {
	c.changeParticipantState(p, stateDroppedOut)
	if !p.offeredUpdateDigest.IsZero() {
		c.refuseUpdate(p.Agent, c.record.Run, c.record.Round, p.offeredUpdateDigest, wire.RefuseNotSelected)
	}
	c.reassignDraws(now, p)
	c.closeRoundIfReady(now)
}

// edgesAmongParticipants returns the edges whose two ends are both participants. It drops edges of agents that were
// revoked while the edges were computed.
func edgesAmongParticipants(edges []MixingEdge, participants []Participant) []MixingEdge {
	in := func(a wire.AgentID) bool {
		_, found := slices.BinarySearchFunc(participants, a, compareParticipantToID)
		return found
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e MixingEdge) bool { return !in(e.A) || !in(e.B) })
}
