package round

import (
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// rosterMember is the coordinator's knowledge about an agent, apart from its work in rounds.
type rosterMember struct {
	boot        wire.Epoch
	isPresent   bool
	isSidelined bool               // whether the agent is excluded from draws
	unfitReason wire.DeclineReason // reason why the agent cannot perform the task; 0 means that it can
	// column and reason of the problem in the agent's local data; empty if there is no problem
	dataProblem string
	rowCount    uint64
	// Euclidean norm of the agent's last update, for importance sampling; 0 means unknown
	lastUpdateNorm float64
	newRowCount    uint64 // number of the agent's rows that no round has used yet
	reportsNewRows bool   // whether the agent reports how many of its rows are new
	// last round that used rows of the agent's current process; 0 means none
	lastRoundUsingRows wire.RoundID
	peerKey            wire.X25519PublicKey // public key with which the agent mixes; zero if it does not mix
	supportsClipping   bool                 // whether the agent supports clipped mixing
	location           wire.AgentLocation
	// neighbors are the agents with which this agent can mix.
	neighbors         []wire.AgentID
	helloWindowNumber uint32 // number of the hello window in which the agent's last hello message was counted
}

func (m *rosterMember) isPresentAndFit() bool { return m.isPresent && m.unfitReason == 0 }
func (m *rosterMember) mayBeDrawn() bool {
	return m.isPresentAndFit() && !m.isSidelined
}

// toMixingAgent returns the inputs of the edge computation for the agent with the given id.
func (m *rosterMember) toMixingAgent(id wire.AgentID) MixingAgent {
	return MixingAgent{ID: id, CanMix: m.peerKey != wire.X25519PublicKey{}, Location: m.location,
		Neighbors: m.neighbors}
}

// roster contains all agents known to the coordinator. It keeps running counts, since counting all agents at each hello
// message would take quadratic time in total.
type roster struct {
	memberByAgent           map[wire.AgentID]*rosterMember
	presentAndFitMembers    int    // number of members that are present and able to do the task
	eligibleMembers         int    // number K of members that may be drawn
	membersReportingNewRows int    // number of present and fit members that report their number of new rows
	membersWithNewRows      int    // number of present and fit members that each have at least minNewRows new rows
	minNewRows              uint64 // number of new rows from which a member counts in membersWithNewRows
	// whether the agents or their neighbours have changed since mixing edges were last computed
	edgesStale bool
}

// changeMember changes a member of the roster, or adds the member, and updates the counts. All changes of members must
// use this function.
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

func (r *roster) removeMember(a wire.AgentID) {
	if m := r.memberByAgent[a]; m != nil {
		r.adjustMemberCounts(m, -1)
		delete(r.memberByAgent, a)
		r.edgesStale = true
	}
}

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

// matchingAgentIDs returns the agents that satisfy the predicate, in id order.
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

// mixingAgents returns the inputs of the edge computation for the given agents.
func (r *roster) mixingAgents(agents []wire.AgentID) []MixingAgent {
	ends := make([]MixingAgent, len(agents))
	for i, id := range agents {
		ends[i] = r.memberByAgent[id].toMixingAgent(id)
	}
	return ends
}
