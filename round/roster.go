package round

import (
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// rosterMember is what the coordinator knows of an agent, whatever the round.
type rosterMember struct {
	boot               wire.Epoch
	present            bool
	sidelined          bool               // it is not drawn now
	unfitReason        wire.DeclineReason // 0 = fit
	dataProblem        string             // column and reason, of an unfit one
	rowCount           uint64
	lastUpdateLength   float64              // of its last update, where agents are drawn by that; 0 = not known
	newRows            uint64               // that no round has used
	reportsNewRows     bool                 // how many these are
	lastRoundUsingRows wire.RoundID         // the last round that has used some of this start; 0 = none
	peerKey            wire.X25519PublicKey // zero = it does not mix
	supportsClipping   bool                 // it knows clipped mixing
	location           wire.Location
	// neighbors are those that it would mix with.
	neighbors         []wire.AgentID
	helloWindowNumber uint32 // in which it was heard
}

func (m *rosterMember) isAvailable() bool { return m.present && m.unfitReason == 0 }
func (m *rosterMember) mayBeDrawn() bool {
	return m.isAvailable() && !m.sidelined
}

// meshAgent is what the member's edges may follow from.
func (m *rosterMember) meshAgent(id wire.AgentID) MeshAgent {
	return MeshAgent{ID: id, CanMix: m.peerKey != wire.X25519PublicKey{}, Location: m.location, Neighbors: m.neighbors}
}

// roster holds all members. It counts them as they change, since counting them anew for each hello takes quadratic
// time.
type roster struct {
	members              map[wire.AgentID]*rosterMember
	availableMembers     int    // members that are present and fit
	eligibleMembers      int    // the same, and not sitting out: K, if a round were drawn now
	membersReportingRows int    // drawn members that report new rows
	membersWithNewRows   int    // drawn members with enough new rows
	minNewRows           uint64 // minimum number of new rows
	edgesStale           bool   // inputs of the edge choice have changed since the last computation
}

// changeMember is the only way to change a member, so that the counts hold. It makes the member if there is none.
func (r *roster) changeMember(a wire.AgentID, change func(m *rosterMember)) *rosterMember {
	m := r.members[a]
	if m == nil {
		m = new(rosterMember)
		r.members[a] = m
	}
	r.adjustCounts(m, -1)
	was := *m
	change(m)
	r.adjustCounts(m, +1)
	r.edgesStale = r.edgesStale || was.isAvailable() != m.isAvailable() || was.sidelined != m.sidelined ||
		!was.meshAgent(a).Equal(m.meshAgent(a))
	return m
}

// remove forgets a member.
func (r *roster) remove(a wire.AgentID) {
	if m := r.members[a]; m != nil {
		r.adjustCounts(m, -1)
		delete(r.members, a)
		r.edgesStale = true
	}
}

// forget forgets all members.
func (r *roster) forget() {
	*r = roster{members: map[wire.AgentID]*rosterMember{}, minNewRows: r.minNewRows, edgesStale: true}
}

func (r *roster) adjustCounts(m *rosterMember, by int) {
	if m.isAvailable() {
		r.availableMembers += by
		if m.reportsNewRows {
			r.membersReportingRows += by
		}
		if m.newRows >= r.minNewRows {
			r.membersWithNewRows += by
		}
	}
	if m.mayBeDrawn() {
		r.eligibleMembers += by
	}
}

// eligible returns, in id order, the agents that may be drawn.
func (r *roster) eligible() []wire.AgentID {
	return r.selectMembers(func(_ wire.AgentID, m *rosterMember) bool { return m.mayBeDrawn() })
}

// selectMembers returns some agents, in id order.
func (r *roster) selectMembers(are func(wire.AgentID, *rosterMember) bool) []wire.AgentID {
	ids := make([]wire.AgentID, 0, r.eligibleMembers)
	for id, m := range r.members {
		if are(id, m) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// meshAgents are what the edges of agents may follow from.
func (r *roster) meshAgents(agents []wire.AgentID) []MeshAgent {
	ends := make([]MeshAgent, len(agents))
	for i, id := range agents {
		ends[i] = r.members[id].meshAgent(id)
	}
	return ends
}
