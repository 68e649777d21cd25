package round

import (
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// member is what the coordinator knows of an agent, whatever the round.
type member struct {
	boot    wire.Epoch
	present bool
	sitsOut bool               // it is not drawn now
	unfit   wire.DeclineReason // 0 = fit
	misfit  string             // column and reason, of an unfit one
	samples uint64
	length  float64      // of its last update, where agents are drawn by that; 0 = not known
	newRows uint64       // that no round has used
	tells   bool         // how many these are
	usedIn  wire.RoundID // the last round that has used some of this start; 0 = none
	peerKey wire.PeerKey // zero = it does not mix
	clips   bool         // it knows clipped mixing
	place   wire.Location
	// neighbors are those that it would mix with.
	neighbors []wire.AgentID
	window    uint32 // in which it was heard
}

func (m *member) isThere() bool { return m.present && m.unfit == 0 }
func (m *member) mayBeDrawn() bool {
	return m.isThere() && !m.sitsOut
}

// end is what the member's edges may follow from.
func (m *member) end(id wire.AgentID) MeshAgent {
	return MeshAgent{ID: id, Mixes: m.peerKey != wire.PeerKey{}, Place: m.place, Neighbors: m.neighbors}
}

// roster holds all members. It counts them as they change, since counting them anew for each hello takes quadratic
// time.
type roster struct {
	members    map[wire.AgentID]*member
	there      int    // members that are present and fit
	drawn      int    // the same, and not sitting out: K, if a round were drawn now
	telling    int    // drawn members that report new rows
	fresh      int    // drawn members with enough new rows
	enough     uint64 // minimum number of new rows
	edgesStale bool   // inputs of the edge choice have changed since the last computation
}

// change is the only way to change a member, so that the counts hold. It makes the member if there is none.
func (r *roster) change(a wire.AgentID, change func(m *member)) *member {
	m := r.members[a]
	if m == nil {
		m = new(member)
		r.members[a] = m
	}
	r.count(m, -1)
	was := *m
	change(m)
	r.count(m, +1)
	r.edgesStale = r.edgesStale || was.isThere() != m.isThere() || was.sitsOut != m.sitsOut ||
		!was.end(a).Equal(m.end(a))
	return m
}

// remove forgets a member.
func (r *roster) remove(a wire.AgentID) {
	if m := r.members[a]; m != nil {
		r.count(m, -1)
		delete(r.members, a)
		r.edgesStale = true
	}
}

// forget forgets all members.
func (r *roster) forget() {
	*r = roster{members: map[wire.AgentID]*member{}, enough: r.enough, edgesStale: true}
}

func (r *roster) count(m *member, by int) {
	if m.isThere() {
		r.there += by
		if m.tells {
			r.telling += by
		}
		if m.newRows >= r.enough {
			r.fresh += by
		}
	}
	if m.mayBeDrawn() {
		r.drawn += by
	}
}

// eligible returns, in id order, the agents that may be drawn.
func (r *roster) eligible() []wire.AgentID {
	return r.those(func(_ wire.AgentID, m *member) bool { return m.mayBeDrawn() })
}

// those returns some agents, in id order.
func (r *roster) those(are func(wire.AgentID, *member) bool) []wire.AgentID {
	ids := make([]wire.AgentID, 0, r.drawn)
	for id, m := range r.members {
		if are(id, m) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ends are what the edges of agents may follow from.
func (r *roster) ends(agents []wire.AgentID) []MeshAgent {
	ends := make([]MeshAgent, len(agents))
	for i, id := range agents {
		ends[i] = r.members[id].end(id)
	}
	return ends
}
