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
	edgesMustChange     bool          // an agent of the endless block was revoked, so another block begins
	pendingParticipants []Participant // of the next round, while its edges are computed; else nil
	lastRequest         []MeshAgent   // agents of the last request for edges
	requestPending      bool          // a request ahead of the next round has no result yet
	reports             edgeReportCollector
	reportsDeadline     time.Time // until then, a round that could close waits for reports of edges; zero = it does not
	endedEdgeByEnds     map[edgeKey]EndedEdge
}

// MeshAgent contains what determines the edges of an agent.
type MeshAgent struct {
	ID       wire.AgentID
	CanMix   bool // it can reach neighbours
	Location wire.Location
	// Neighbors are the neighbours that the agent has discovered, in id order.
	Neighbors []wire.AgentID
	// AvoidedAgents are agents with which it gets no edge in any case: see [EndedEdge].
	AvoidedAgents []wire.AgentID
}

// Equal reports whether a and b lead to the same edges.
func (a MeshAgent) Equal(b MeshAgent) bool {
	return a.ID == b.ID && a.CanMix == b.CanMix && a.Location == b.Location && slices.Equal(a.Neighbors, b.Neighbors) &&
		slices.Equal(a.AvoidedAgents, b.AvoidedAgents)
}

// roundHasMixing reports whether all agents take part in the round and mix with their neighbours.
func (c *Coordinator) roundHasMixing() bool {
	return c.cfg.Algorithm == spec.FedDec && c.rec.Plan.Kind == wire.KindTraining
}

// requestEdges requests the edges between the agents before the round is opened. Until the result arrives, the record
// has the edges of the previous block.
func (c *Coordinator) requestEdges(agents []wire.AgentID) {
	c.phaseDeadline = time.Time{}
	for _, id := range agents {
		a := c.roster.members[id]
		c.mixing.pendingParticipants = append(c.mixing.pendingParticipants,
			Participant{Agent: id, Weight: 1, Boot: a.boot, PeerKey: a.peerKey, Clips: a.supportsClipping,
				Samples: a.rowCount})
	}
	c.mixing.lastRequest = c.meshAgentsOf(agents)
	c.emit(RequestEdges{c.rec.Round, c.mixing.lastRequest})
}

// requestEdgesAhead requests the edges of the next round during the current one if the agents have changed since the
// last request. Without it, the next round would wait for the edges. There is at most one such request at a time.
func (c *Coordinator) requestEdgesAhead() {
	if c.cfg.Algorithm != spec.FedDec || !c.announcement.published || !c.roster.edgesStale ||
		c.mixing.requestPending || c.mixing.pendingParticipants != nil || c.isInPhase(CoordinatorGathering) ||
		c.isInPhase(CoordinatorFinished) {
		return
	}
	c.roster.edgesStale = false
	agents := c.roster.selectMembers(func(a wire.AgentID, m *rosterMember) bool {
		return m.isAvailable() && c.sidelined[a].Until <= c.rec.Round
	})
	if c.blockContinues(agents) && len(c.agentsWithoutEdges(c.rec.Participants)) == 0 {
		return
	}
	if ends := c.meshAgentsOf(agents); !slices.EqualFunc(ends, c.mixing.lastRequest, MeshAgent.Equal) {
		c.mixing.lastRequest, c.mixing.requestPending = ends, true
		c.emit(RequestEdgesAhead{ends})
	}
}

// handleEdgesReady opens the round: everybody trains, L draws say who sends. If nobody can be invited by now it is
// gathered anew. A block without an end goes on anyway, if the new edges join nobody who had none.
func (c *Coordinator) handleEdgesReady(now time.Time, e EdgesReady) {
	if c.mixing.pendingParticipants == nil || e.Round != c.rec.Round {
		return
	}
	participants := c.mixing.pendingParticipants
	c.mixing.pendingParticipants = nil
	if !c.linkUp || len(participants) == 0 {
		if c.isInPhase(CoordinatorGathering) {
			c.rec.Attempt++
		}
		c.startGathering(now)
		return
	}
	edges := edgesAmong(e.Edges, participants)
	agents := make([]wire.AgentID, len(participants))
	for i, p := range participants {
		agents[i] = p.Agent
	}
	if apart := c.agentsWithoutEdges(participants); c.blockContinues(agents) &&
		!slices.ContainsFunc(edges, func(x Edge) bool { return apart[x.A] || apart[x.B] }) {
		c.continueBlock(now, agents)
		return
	}
	c.setEdgeClips(edges, participants)
	c.rec.Participants, c.rec.Edges, c.rec.Block, c.mixing.edgesMustChange = participants, edges, c.rec.Round, false
	c.startCollectingEdgeReports()
	c.openMixingRound(now, len(participants), func(int) bool { return true })
}

// openMixingRound opens a round in which agents mix: L draws, of the k agents that are there, say who sends.
func (c *Coordinator) openMixingRound(now time.Time, k int, here func(i int) bool) {
	c.rec.Agents, c.rec.Drawn = k, 0
	for _, i := range c.drawParticipants(c.cfg.Participants, here) {
		c.rec.Participants[i].Times++
	}
	c.announcement.roundAnnouncedAt = now
	c.startCollecting(now)
}

// continueBlock opens a round of a block without an end, which has all agents in it.
func (c *Coordinator) continueBlock(now time.Time, agents []wire.AgentID) {
	for _, id := range agents {
		i, _ := slices.BinarySearchFunc(c.rec.Participants, id, compareToAgentID)
		p, m := &c.rec.Participants[i], c.roster.members[id]
		p.Boot, p.Samples = m.boot, m.rowCount
	}
	c.openMixingRound(now, len(agents), func(i int) bool {
		_, here := slices.BinarySearch(agents, c.rec.Participants[i].Agent)
		return here
	})
}

// agentsWithoutEdges returns those that are here, could mix, and have no edge in the block: its edges may have been
// made before they had found each other.
func (c *Coordinator) agentsWithoutEdges(participants []Participant) map[wire.AgentID]bool {
	joined, apart := map[wire.AgentID]bool{}, map[wire.AgentID]bool{}
	for _, e := range c.rec.Edges {
		joined[e.A], joined[e.B] = true, true
	}
	for _, p := range participants {
		if m := c.roster.members[p.Agent]; m != nil && m.mayBeDrawn() && m.peerKey != (wire.X25519PublicKey{}) &&
			!joined[p.Agent] {
			apart[p.Agent] = true
		}
	}
	return apart
}

// blockContinues tells that the block without an end, in which the agents mix, has all of them: its edges stay. An
// agent that has left keeps them too, as it may mix still where the coordinator cannot see it.
func (c *Coordinator) blockContinues(agents []wire.AgentID) bool {
	if !c.rec.Plan.Endless || c.rec.Block == 0 || c.mixing.edgesMustChange {
		return false
	}
	for _, id := range agents {
		i, found := slices.BinarySearchFunc(c.rec.Participants, id, compareToAgentID)
		if !found || c.rec.Participants[i].PeerKey != c.roster.members[id].peerKey {
			return false
		}
	}
	return true
}

// forgetParticipants ends a round. A block without an end outlives it, with its edges.
func (c *Coordinator) forgetParticipants() {
	c.rec.Agents = 0
	if !c.rec.Plan.Endless {
		c.rec.Participants, c.rec.Edges = nil, nil
		return
	}
	for i := range c.rec.Participants {
		c.rec.Participants[i].Times, c.rec.Participants[i].Accepted = 0, wire.Digest{}
	}
}

// drawParticipants continues the round's seeded sequence of draws by n of those that may
// be drawn, as indices of participants. A restart goes on in the same sequence.
func (c *Coordinator) drawParticipants(n int, may func(i int) bool) []int {
	rng := NewDrawRand(c.cfg.Seed, c.rec.Round)
	k := len(c.rec.Participants)
	for range c.rec.Drawn {
		rng.IntN(k)
	}
	var drawn []int
	for len(drawn) < n {
		i := rng.IntN(k)
		c.rec.Drawn++
		if may(i) {
			drawn = append(drawn, i)
		}
	}
	return drawn
}

// reassignDraws moves the draws of an agent that will not send its model to other
// agents, whose models stand for it: by mixing, all have come near to one.
func (c *Coordinator) reassignDraws(now time.Time, p *participantProgress) {
	if !c.roundHasMixing() || p.Times == 0 {
		return
	}
	able := func(i int) bool {
		q := c.progress.byAgent[c.rec.Participants[i].Agent]
		m := c.roster.members[q.Agent]
		return q != p && !c.isSidelined(q.Agent) &&
			(q.state == peerAccepted || q.state < peerAccepted && (m == nil || m.present))
	}
	if !slices.ContainsFunc(c.rec.Participants, func(q Participant) bool {
		i, _ := slices.BinarySearchFunc(c.rec.Participants, q.Agent, compareToAgentID)
		return able(i)
	}) {
		return
	}
	n := p.Times
	c.addDraws(p, -n)
	drawn := c.drawParticipants(n, able)
	for _, i := range drawn {
		c.addDraws(c.progress.byAgent[c.rec.Participants[i].Agent], 1)
	}
	c.saveJournalRecord(now) // before anybody is told
	slices.Sort(drawn)
	for _, i := range slices.Compact(drawn) {
		q := c.progress.byAgent[c.rec.Participants[i].Agent]
		c.report(UploaderReplaced{Round: c.rec.Round, Agent: p.Agent, Replacement: q.Agent})
		if q.state < peerAccepted { // until it says joined once more: it has to know
			c.changeState(q, peerInvited)
			c.inviteParticipant(now, q)
		}
	}
}

func compareToAgentID(p Participant, id wire.AgentID) int {
	if p.Agent < id {
		return -1
	} else if p.Agent > id {
		return 1
	}
	return 0
}

// mixingPeersOf returns a participant's ends of its edges, in id order. An agent that
// has restarted since the edges were made has none until the next round, unless the block has no end.
func (c *Coordinator) mixingPeersOf(p *participantProgress) []wire.Peer {
	if m := c.roster.members[p.Agent]; m != nil && m.boot != p.Boot && !c.rec.Plan.Endless {
		return nil
	}
	var peers []wire.Peer
	for _, k := range p.edgeIndices {
		e := c.rec.Edges[k]
		other := e.A
		if p.Agent == e.A {
			other = e.B
		}
		i, _ := slices.BinarySearchFunc(c.rec.Participants, other, compareToAgentID)
		q := &c.rec.Participants[i]
		peers = append(peers, wire.Peer{ID: other, Boot: q.Boot, Key: q.PeerKey, MixingWeight: e.Weight,
			ClipBound: e.Clip, RequiresProofs: e.Proves})
	}
	sort.Slice(peers, func(i, j int) bool { return peers[i].ID < peers[j].ID })
	return peers
}

var replacedUploaders = observe.Counter("uploaders_replaced_total",
	"Agents that were drawn to send and will not, where agents mix; others were drawn in their place.")

// UploaderReplaced: an agent that was drawn to send its model will not send it, and another agent was drawn instead.
type UploaderReplaced struct {
	Round              wire.RoundID
	Agent, Replacement wire.AgentID
}

// Describe implements observe.Event.
func (e UploaderReplaced) Describe(d *observe.Description) {
	d.Inc(replacedUploaders)
	d.Log(observe.Info, "agent replaced as a sender", "round", e.Round, "agent", e.Agent, "by", e.Replacement)
}
