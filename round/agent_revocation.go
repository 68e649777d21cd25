package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// handleAgentsRevoked forgets agents that may no longer take part, and ends their part in the open round. An update of
// theirs that is accepted already stays in it: nothing that is accepted is lost.
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

// endRevokedParticipation ends the part of a participant that is revoked.
func (c *CoordinatorMachine) endRevokedParticipation(now time.Time, p *participantProgress) {
	c.changeParticipantState(p, stateDroppedOut)
	if !p.offeredUpdateDigest.IsZero() {
		c.refuseUpdate(p.Agent, c.record.Run, c.record.Round, p.offeredUpdateDigest, wire.RefuseNotSelected)
	}
	c.reassignDraws(now, p)
	c.closeRoundIfReady(now)
}

// edgesAmongParticipants keeps the edges between participants: one of them may have been revoked while the edges were
// made.
func edgesAmongParticipants(edges []MixingEdge, participants []Participant) []MixingEdge {
	in := func(a wire.AgentID) bool {
		_, found := slices.BinarySearchFunc(participants, a, compareParticipantToID)
		return found
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e MixingEdge) bool { return !in(e.A) || !in(e.B) })
}
