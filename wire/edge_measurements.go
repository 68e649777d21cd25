package wire

import "math"

// EdgeEndReason tells why an edge was taken away. It is a metric's label.
type EdgeEndReason uint8

// The reasons for taking an edge away.
const (
	EndFar     EdgeEndReason = iota + 1 // its ends were much farther apart than those of others
	EndStill                            // by most of its neighbours, the other end does not move as one that mixes
	lastEnding = EndStill
)

// String returns the reason's name, as metrics and logs show it.
func (r EdgeEndReason) String() string { return enumName(uint8(r), "far", "still") }

// EdgeEndReasons returns all reasons, for closed label sets.
func EdgeEndReasons() []EdgeEndReason { return allEnumValues(lastEnding) }

// EndedEdge is an edge that an agent would have, and has not for some rounds.
type EndedEdge struct {
	ID     AgentID // the neighbour
	Reason EdgeEndReason
}

// EdgeMeasurement is what one end of an edge has measured of it.
type EdgeMeasurement struct {
	ID           AgentID // the neighbour
	AppliedFlows uint32  // that were applied
	Clipped      uint32  // of these: bounded by τ
	Distance     float64 // mean of ‖x_j − x_i‖ over them; MaxFloat64 if it is larger
	// PullResponse is how much of the pull towards this end the neighbour yielded to: Σ⟨x_j' − x_j, x_i − x_j⟩ / Σ‖x_i
	// − x_j‖² over pairs of snapshots that follow each other. An agent that mixes has about the edge's weight or more.
	PullResponse float64
}

// EdgeMeasurements is what an agent has measured of its edges in a block, since its last answer; zero = nothing.
type EdgeMeasurements struct {
	BlockRound RoundID           // for which the edges were made
	Edges      []EdgeMeasurement // by ID
}

func (w *writer) edgeMeasurements(m *EdgeMeasurements) {
	if len(m.Edges) == 0 {
		return
	}
	w.u64(uint64(m.BlockRound))
	w.u32(uint32(len(m.Edges)))
	for _, e := range m.Edges {
		w.str(string(e.ID))
		w.u32(e.AppliedFlows)
		w.u32(e.Clipped)
		w.f64(min(e.Distance, math.MaxFloat64))
		w.f64(e.PullResponse)
	}
}

func (r *reader) edgeMeasurements(m *EdgeMeasurements) {
	m.BlockRound = RoundID(r.u64())
	last := AgentID("")
	for range r.listLength("edges", MaxNeighbors, 27) {
		e := EdgeMeasurement{ID: r.neighbor(last), AppliedFlows: r.u32(), Clipped: r.u32(), Distance: r.f64("distance"),
			PullResponse: r.f64("yield")}
		if r.err == nil && (e.Clipped > e.AppliedFlows || e.Distance < 0) {
			r.failf("edge to %q: %d of %d flows clipped, distance %v", e.ID, e.Clipped, e.AppliedFlows, e.Distance)
		}
		last = e.ID
		m.Edges = append(m.Edges, e)
	}
}

// neighbor reads an agent's id of a list in id order; before is the one before it.
func (r *reader) neighbor(before AgentID) AgentID {
	id := AgentID(r.str("neighbour", MaxAgentID))
	if r.err != nil {
		return ""
	}
	if err := id.ValidateAgent(); err != nil {
		r.fail(err)
	}
	if id <= before {
		r.failf("neighbour %q after %q: they must ascend", id, before)
	}
	return id
}

// clipBounds writes τ of each peer's edge, if there is one.
func (w *writer) clipBounds(m *Invitation) {
	some := false
	for _, p := range m.Peers {
		some = some || p.ClipBound != 0
	}
	if !some {
		return
	}
	w.u32(uint32(len(m.Peers)))
	for _, p := range m.Peers {
		w.f64(p.ClipBound)
	}
}

// clipBounds comes after peers.
func (r *reader) clipBounds(m *Invitation) {
	all := r.f64s("bound", MaxNeighbors)
	if r.err == nil && len(all) != len(m.Peers) {
		r.failf("%d bounds of %d edges", len(all), len(m.Peers))
	}
	if r.err != nil {
		return
	}
	for i, tau := range all {
		if tau < 0 {
			r.failf("bound of the edge to %q is %v", m.Peers[i].ID, tau)
		}
		m.Peers[i].ClipBound = tau
	}
}

// proofRequirement writes whether all edges have them; without edges none have.
func (w *writer) proofRequirement(m *Invitation) {
	for _, p := range m.Peers {
		if !p.RequiresProofs {
			return
		}
	}
	if len(m.Peers) > 0 {
		w.bool(true)
	}
}

// proofRequirement comes after peers.
func (r *reader) proofRequirement(m *Invitation) {
	if yes := r.bool("proofs"); r.err == nil && (!yes || len(m.Peers) == 0) {
		r.failf("a section proofs without them, or without edges")
	}
	for i := range m.Peers {
		m.Peers[i].RequiresProofs = true
	}
}

func (w *writer) endedEdges(m *Invitation) {
	if len(m.EndedEdges) == 0 {
		return
	}
	w.u32(uint32(len(m.EndedEdges)))
	for _, e := range m.EndedEdges {
		w.str(string(e.ID))
		w.u8(uint8(e.Reason))
	}
}

func (r *reader) endedEdges(m *Invitation) {
	last := AgentID("")
	for range r.listLength("edges", MaxNeighbors, 4) {
		e := EndedEdge{r.neighbor(last), EdgeEndReason(r.enum("reason", uint8(lastEnding)))}
		last = e.ID
		m.EndedEdges = append(m.EndedEdges, e)
	}
}
