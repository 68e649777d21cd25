package round

import (
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// mixingState is the state of the edges between agents that mix.
type mixingState struct {
	// whether the edges of an endless block must be computed again, for example because an agent of the block was
	// revoked
	edgesMustChange bool
	// participants of the next round while the round's edges are computed; otherwise nil
	pendingParticipants      []Participant
	lastRequestedAgents      []MixingAgent // agents for which edges were last requested
	edgesAheadRequestPending bool          // whether an effect RequestEdgesAhead is pending
	edgeReports              edgeReportCollector
	// time until which a round that is ready to close waits for edge reports; zero if the round does not wait
	edgeReportsDeadline time.Time
	endedEdgeByEnds     map[edgeKey]EndedEdge
}

// MixingAgent contains the inputs of the edge computation for one agent.
type MixingAgent struct {
	ID       wire.AgentID
	CanMix   bool // whether the agent can reach neighbours
	Location wire.AgentLocation
	// Neighbors are the neighbours that the agent has discovered, in id order.
	Neighbors []wire.AgentID
	// AvoidedAgents contains the agents to which this agent must not get an edge, because that edge is excluded
	// ([EndedEdge]).
	AvoidedAgents []wire.AgentID
}

// Equal reports whether a and b are equal as inputs of the edge computation.
func (a MixingAgent) Equal(b MixingAgent) bool {
	return a.ID == b.ID && a.CanMix == b.CanMix && a.Location == b.Location && slices.Equal(a.Neighbors, b.Neighbors) &&
		slices.Equal(a.AvoidedAgents, b.AvoidedAgents)
}

// roundHasMixing reports whether all agents participate in the round and mix with their neighbours.
func (c *CoordinatorMachine) roundHasMixing() bool {
	return c.cfg.Algorithm == spec.FedDec && c.record.Plan.Kind == wire.KindTraining
}

// requestEdges requests the edges between the agents before the round is opened. Until the result arrives, the record
// keeps the edges of the previous block.
func (c *CoordinatorMachine) requestEdges(agents []wire.AgentID) {
	c.phaseDeadline = time.Time{}
	for _, id := range agents {
		a := c.roster.memberByAgent[id]
		c.mixing.pendingParticipants = append(c.mixing.pendingParticipants,
			Participant{Agent: id, Weight: 1, Boot: a.boot, PeerKey: a.peerKey, SupportsClipping: a.supportsClipping,
				RowCount: a.rowCount})
	}
	c.mixing.lastRequestedAgents = c.mixingAgentsOf(agents)
	c.emitEffect(RequestEdges{c.record.Round, c.mixing.lastRequestedAgents})
}

// requestEdgesAhead requests the edges of the next round during the current one if the agents have changed since the
// last request, so that the next round need not wait for its edges. At most one such request is pending.
func (c *CoordinatorMachine) requestEdgesAhead() {
	if c.cfg.Algorithm != spec.FedDec || !c.announcement.isPublished || !c.roster.edgesStale ||
		c.mixing.edgesAheadRequestPending || c.mixing.pendingParticipants != nil || c.isInPhase(CoordinatorGathering) ||
		c.isInPhase(CoordinatorFinished) {
		return
	}
	c.roster.edgesStale = false
	agents := c.roster.matchingAgentIDs(func(a wire.AgentID, m *rosterMember) bool {
		return m.isPresentAndFit() && c.sidelinedAgentByID[a].LastSidelinedRound <= c.record.Round
	})
	if c.mixingBlockContinues(agents) && len(c.agentsWithoutEdges(c.record.Participants)) == 0 {
		return
	}
	if ends := c.mixingAgentsOf(agents); !slices.EqualFunc(ends, c.mixing.lastRequestedAgents, MixingAgent.Equal) {
		c.mixing.lastRequestedAgents, c.mixing.edgesAheadRequestPending = ends, true
		c.emitEffect(RequestEdgesAhead{ends})
	}
}

// handleEdgesReady opens the round: all participants train, and L draws select the agents that send updates. If no
// agent can be invited, it asks all agents for a hello message again. An endless block keeps its previous edges unless
// the new edges connect an agent that had no edge.
func (c *CoordinatorMachine) handleEdgesReady(now time.Time, e EdgesReady) {
	if c.mixing.pendingParticipants == nil || e.Round != c.record.Round {
		return
	}
	participants := c.mixing.pendingParticipants
	c.mixing.pendingParticipants = nil
	if !c.linkUp || len(participants) == 0 {
		if c.isInPhase(CoordinatorGathering) {
			c.record.Attempt++
		}
		c.startGathering(now)
		return
	}
	edges := edgesAmongParticipants(e.Edges, participants)
	agents := make([]wire.AgentID, len(participants))
	for i, p := range participants {
		agents[i] = p.Agent
	}
	if apart := c.agentsWithoutEdges(participants); c.mixingBlockContinues(agents) &&
		!slices.ContainsFunc(edges, func(x MixingEdge) bool { return apart[x.A] || apart[x.B] }) {
		c.continueMixingBlock(now, agents)
		return
	}
	c.setEdgeClipBounds(edges, participants)
	c.record.Participants, c.record.Edges, c.record.MixingBlockRound, c.mixing.edgesMustChange = participants, edges,
		c.record.Round, false
	c.startCollectingEdgeReports()
	c.openMixingRound(now, len(participants), func(int) bool { return true })
}

// openMixingRound opens a round in which agents mix. It draws L times among the k present agents to select the agents
// that must send an update.
func (c *CoordinatorMachine) openMixingRound(now time.Time, k int, here func(i int) bool) {
	c.record.EligibleAgents, c.record.RandomDrawsMade = k, 0
	for _, i := range c.drawParticipants(c.cfg.Participants, here) {
		c.record.Participants[i].DrawCount++
	}
	c.announcement.roundAnnouncedAt = now
	c.startCollectingUpdates(now)
}

// continueMixingBlock opens a round of an endless block that contains all agents.
func (c *CoordinatorMachine) continueMixingBlock(now time.Time, agents []wire.AgentID) {
	for _, id := range agents {
		i, _ := slices.BinarySearchFunc(c.record.Participants, id, compareParticipantToID)
		p, m := &c.record.Participants[i], c.roster.memberByAgent[id]
		p.Boot, p.RowCount = m.boot, m.rowCount
	}
	c.openMixingRound(now, len(agents), func(i int) bool {
		_, here := slices.BinarySearch(agents, c.record.Participants[i].Agent)
		return here
	})
}

// agentsWithoutEdges returns the present agents that can mix but have no edge in the block. They may have discovered
// their neighbours after the edges were computed.
func (c *CoordinatorMachine) agentsWithoutEdges(participants []Participant) map[wire.AgentID]bool {
	joined, apart := map[wire.AgentID]bool{}, map[wire.AgentID]bool{}
	for _, e := range c.record.Edges {
		joined[e.A], joined[e.B] = true, true
	}
	for _, p := range participants {
		if m := c.roster.memberByAgent[p.Agent]; m != nil && m.mayBeDrawn() && m.peerKey != (wire.X25519PublicKey{}) &&
			!joined[p.Agent] {
			apart[p.Agent] = true
		}
	}
	return apart
}

// mixingBlockContinues reports whether the endless block contains all agents, so that its edges remain. An agent that
// has left keeps its edges, since it may still mix without a connection to the coordinator.
func (c *CoordinatorMachine) mixingBlockContinues(agents []wire.AgentID) bool {
	if !c.record.Plan.HasEndlessBlocks || c.record.MixingBlockRound == 0 || c.mixing.edgesMustChange {
		return false
	}
	for _, id := range agents {
		i, found := slices.BinarySearchFunc(c.record.Participants, id, compareParticipantToID)
		if !found || c.record.Participants[i].PeerKey != c.roster.memberByAgent[id].peerKey {
			return false
		}
	}
	return true
}

// forgetParticipants clears the participants at the end of a round. An endless block and its edges remain.
func (c *CoordinatorMachine) forgetParticipants() {
	c.record.EligibleAgents = 0
	if !c.record.Plan.HasEndlessBlocks {
		c.record.Participants, c.record.Edges = nil, nil
		return
	}
	for i := range c.record.Participants {
		c.record.Participants[i].DrawCount, c.record.Participants[i].AcceptedUpdateDigest = 0, wire.Digest{}
	}
}

// drawParticipants draws n participants with replacement and returns their indices. It draws only indices i for which
// may(i) returns true. Each call continues the round's sequence of random numbers, also after a restart.
func (c *CoordinatorMachine) drawParticipants(n int, may func(i int) bool) []int {
	rng := NewDrawRand(c.cfg.Seed, c.record.Round)
	k := len(c.record.Participants)
	for range c.record.RandomDrawsMade {
		rng.IntN(k)
	}
	var drawn []int
	for len(drawn) < n {
		i := rng.IntN(k)
		c.record.RandomDrawsMade++
		if may(i) {
			drawn = append(drawn, i)
		}
	}
	return drawn
}

// reassignDraws transfers the draws of an agent that will not send its update to other agents. The updates of these
// agents can replace the missing update, because mixing makes the agents' parameters similar.
func (c *CoordinatorMachine) reassignDraws(now time.Time, p *participantProgress) {
	if !c.roundHasMixing() || p.DrawCount == 0 {
		return
	}
	able := func(i int) bool {
		q := c.progress.progressByAgent[c.record.Participants[i].Agent]
		m := c.roster.memberByAgent[q.Agent]
		return q != p && !c.isSidelined(q.Agent) &&
			(q.state == stateAccepted || q.state < stateAccepted && (m == nil || m.isPresent))
	}
	if !slices.ContainsFunc(c.record.Participants, func(q Participant) bool {
		i, _ := slices.BinarySearchFunc(c.record.Participants, q.Agent, compareParticipantToID)
		return able(i)
	}) {
		return
	}
	n := p.DrawCount
	c.addParticipantDraws(p, -n)
	drawn := c.drawParticipants(n, able)
	for _, i := range drawn {
		c.addParticipantDraws(c.progress.progressByAgent[c.record.Participants[i].Agent], 1)
	}
	c.saveJournalRecord(now) // The record must be on disk before an agent is informed.
	slices.Sort(drawn)
	for _, i := range slices.Compact(drawn) {
		q := c.progress.progressByAgent[c.record.Participants[i].Agent]
		c.reportEvent(UploaderReplaced{Round: c.record.Round, ReplacedAgent: p.Agent, ReplacementAgent: q.Agent})
		if q.state < stateAccepted { // Invite the agent again to inform it of the draw.
			c.changeParticipantState(q, stateInvited)
			c.inviteParticipant(now, q)
		}
	}
}

func compareParticipantToID(p Participant, id wire.AgentID) int {
	if p.Agent < id {
		return -1
	} else if p.Agent > id {
		return 1
	}
	return 0
}

// mixingPeersOf returns the neighbours of a participant, in id order. An agent that has restarted since the edges were
// computed has no neighbours until the next round, except in an endless block.
func (c *CoordinatorMachine) mixingPeersOf(p *participantProgress) []wire.MixingPeer {
	if m := c.roster.memberByAgent[p.Agent]; m != nil && m.boot != p.Boot && !c.record.Plan.HasEndlessBlocks {
		return nil
	}
	var peers []wire.MixingPeer
	for _, k := range p.edgeIndices {
		e := c.record.Edges[k]
		other := e.A
		if p.Agent == e.A {
			other = e.B
		}
		i, _ := slices.BinarySearchFunc(c.record.Participants, other, compareParticipantToID)
		q := &c.record.Participants[i]
		peers = append(peers, wire.MixingPeer{ID: other, BootEpoch: q.Boot, PublicKey: q.PeerKey,
			MixingWeight: e.MixingWeight,
			ClipBound:    e.ClipBound, RequiresSenderProofs: e.RequiresProofs})
	}
	sort.Slice(peers, func(i, j int) bool { return peers[i].ID < peers[j].ID })
	return peers
}

var replacedUploadersMetric = observe.Counter("uploaders_replaced_total",
	"Agents that were drawn to send an update in a round with mixing and were replaced because they cannot send it.")

// UploaderReplaced is emitted when an agent that was drawn to send an update will not send it, and another agent is
// drawn instead.
type UploaderReplaced struct {
	Round                           wire.RoundID
	ReplacedAgent, ReplacementAgent wire.AgentID
}

// Describe implements observe.Event.
func (e UploaderReplaced) Describe(d *observe.EventDescription) {
	d.IncCounter(replacedUploadersMetric)
	d.Log(observe.Info, "uploading agent replaced", "round", e.Round, "agent", e.ReplacedAgent, "replacement",
		e.ReplacementAgent)
}
