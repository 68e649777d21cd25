package round

import (
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// rosterMember is what the coordinator knows of an agent, whatever the round.
type rosterMember struct {
	boot               wire.Epoch
	isPresent          bool
	isSidelined        bool               // it is not drawn now
	unfitReason        wire.DeclineReason // 0 = fit
	dataProblem        string             // column and reason, of an unfit one
	rowCount           uint64
	lastUpdateNorm     float64              // of its last update, where agents are drawn by that; 0 = not known
	newRowCount        uint64               // that no round has used
	reportsNewRows     bool                 // how many these are
	lastRoundUsingRows wire.RoundID         // the last round that has used some of this start; 0 = none
	peerKey            wire.X25519PublicKey // zero = it does not mix
	supportsClipping   bool                 // it knows clipped mixing
	location           wire.AgentLocation
	// neighbors are those that it would mix with.
	neighbors         []wire.AgentID
	helloWindowNumber uint32 // in which it was heard
}

func (m *rosterMember) isPresentAndFit() bool { return m.isPresent && m.unfitReason == 0 }
func (m *rosterMember) mayBeDrawn() bool {
	return m.isPresentAndFit() && !m.isSidelined
}

// toMixingAgent is what the member's edges may follow from.
func (m *rosterMember) toMixingAgent(id wire.AgentID) MixingAgent {
	return MixingAgent{ID: id, CanMix: m.peerKey != wire.X25519PublicKey{}, Location: m.location,
		Neighbors: m.neighbors}
}

// roster holds all members. It counts them as they change, since counting them anew for each hello takes quadratic
// time.
type roster struct {
	memberByAgent           map[wire.AgentID]*rosterMember
	presentAndFitMembers    int    // members that are present and fit
	eligibleMembers         int    // the same, and not sitting out: K, if a round were drawn now
	membersReportingNewRows int    // drawn members that report new rows
	membersWithNewRows      int    // drawn members with enough new rows
	minNewRows              uint64 // minimum number of new rows
	edgesStale              bool   // inputs of the edge choice have changed since the last computation
}

// changeMember is the only way to change a member, so that the counts hold. It makes the member if there is none.
func (r *roster) changeMember(a wire.AgentID, change func(m *rosterMember)) *rosterMember {
	m := r.memberByAgent[a]
	if m == nil {
		m = new(rosterMember)
		r.memberByAgent[a] = m
	}
	r.adjustMemberCounts(m, -1)
	was := *m
	change(m)
	r.adjustMemberCounts(m, +1)
	r.edgesStale = r.edgesStale || was.isPresentAndFit() != m.isPresentAndFit() || was.isSidelined != m.isSidelined ||
		!was.toMixingAgent(a).Equal(m.toMixingAgent(a))
	return m
}

// removeMember forgets a member.
func (r *roster) removeMember(a wire.AgentID) {
	if m := r.memberByAgent[a]; m != nil {
		r.adjustMemberCounts(m, -1)
		delete(r.memberByAgent, a)
		r.edgesStale = true
	}
}

// forgetMembers forgets all members.
func (r *roster) forgetMembers() {
	*r = roster{memberByAgent: map[wire.AgentID]*rosterMember{}, minNewRows: r.minNewRows, edgesStale: true}
}

func (r *roster) adjustMemberCounts(m *rosterMember, by int) {
	if m.isPresentAndFit() {
		r.presentAndFitMembers += by
		if m.reportsNewRows {
			r.membersReportingNewRows += by
		}
		if m.newRowCount >= r.minNewRows {
			r.membersWithNewRows += by
		}
	}
	if m.mayBeDrawn() {
		r.eligibleMembers += by
	}
}

// eligibleAgentIDs returns, in id order, the agents that may be drawn.
func (r *roster) eligibleAgentIDs() []wire.AgentID {
	return r.matchingAgentIDs(func(_ wire.AgentID, m *rosterMember) bool { return m.mayBeDrawn() })
}

// matchingAgentIDs returns some agents, in id order.
func (r *roster) matchingAgentIDs(are func(wire.AgentID, *rosterMember) bool) []wire.AgentID {
	ids := make([]wire.AgentID, 0, r.eligibleMembers)
	for id, m := range r.memberByAgent {
		if are(id, m) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// mixingAgents are what the edges of agents may follow from.
func (r *roster) mixingAgents(agents []wire.AgentID) []MixingAgent {
	ends := make([]MixingAgent, len(agents))
	for i, id := range agents {
		ends[i] = r.memberByAgent[id].toMixingAgent(id)
	}
	return ends
}
