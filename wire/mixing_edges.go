package wire

import "math"

// EdgeEndReason tells why an edge was taken away. It is a metric's label.
type EdgeEndReason uint8

// The reasons for taking an edge away.
const (
	EdgeEndTooDistant EdgeEndReason = iota + 1 // its ends were much farther apart than those of others
	// By most of its neighbours, the other end does not move as one that mixes.
	EdgeEndNotMixing
	lastEdgeEndReason = EdgeEndNotMixing
)

// String returns the reason's name, as metrics and logs show it.
func (r EdgeEndReason) String() string { return enumName(uint8(r), "far", "still") }

// EdgeEndReasons returns all reasons, for closed label sets.
func EdgeEndReasons() []EdgeEndReason { return allEnumValues(lastEdgeEndReason) }

// EndedEdge is an edge that an agent would have, and has not for some rounds.
type EndedEdge struct {
	NeighborID AgentID // the neighbour
	Reason     EdgeEndReason
}

// MixingEdgeMeasurement is what one end of an edge has measured of it.
type MixingEdgeMeasurement struct {
	NeighborID            AgentID // the neighbour
	AppliedFlows          uint32  // that were applied
	ClippedFlows          uint32  // of these: bounded by τ
	MeanParameterDistance float64 // mean of ‖x_j − x_i‖ over them; MaxFloat64 if it is larger
	// MixingResponseRatio is how much of the pull towards this end the neighbour yielded to: Σ⟨x_j' − x_j, x_i − x_j⟩ /
	// Σ‖x_i − x_j‖² over pairs of snapshots that follow each other. An agent that mixes has about the edge's weight or
	// more.
	MixingResponseRatio float64
}

// MixingEdgeMeasurements is what an agent has measured of its edges in a block, since its last answer; zero = nothing.
type MixingEdgeMeasurements struct {
	MixingBlockRound RoundID                 // for which the edges were made
	Edges            []MixingEdgeMeasurement // by ID
}

func (w *writer) edgeMeasurements(m *MixingEdgeMeasurements) {
	if len(m.Edges) == 0 {
		return
	}
	w.u64(uint64(m.MixingBlockRound))
	w.u32(uint32(len(m.Edges)))
	for _, e := range m.Edges {
		w.str(string(e.NeighborID))
		w.u32(e.AppliedFlows)
		w.u32(e.ClippedFlows)
		w.f64(min(e.MeanParameterDistance, math.MaxFloat64))
		w.f64(e.MixingResponseRatio)
	}
}

func (r *reader) edgeMeasurements(m *MixingEdgeMeasurements) {
	m.MixingBlockRound = RoundID(r.u64())
	last := AgentID("")
	for range r.listLength("edges", MaxNeighbors, 27) {
		e := MixingEdgeMeasurement{NeighborID: r.ascendingNeighborID(last), AppliedFlows: r.u32(),
			ClippedFlows: r.u32(), MeanParameterDistance: r.f64("distance"),
			MixingResponseRatio: r.f64("yield")}
		if r.err == nil && (e.ClippedFlows > e.AppliedFlows || e.MeanParameterDistance < 0) {
			r.failf("edge to %q: %d of %d flows clipped, distance %v", e.NeighborID, e.ClippedFlows, e.AppliedFlows,
				e.MeanParameterDistance)
		}
		last = e.NeighborID
		m.Edges = append(m.Edges, e)
	}
}

// ascendingNeighborID reads an agent's id of a list in id order; before is the one before it.
func (r *reader) ascendingNeighborID(before AgentID) AgentID {
	id := AgentID(r.str("neighbour", MaxAgentID))
	if r.err != nil {
		return ""
	}
	if err := id.ValidateNonCoordinator(); err != nil {
		r.fail(err)
	}
	if id <= before {
		r.failf("neighbour %q after %q: they must ascend", id, before)
	}
	return id
}

// peerClipBounds writes τ of each peer's edge, if there is one.
func (w *writer) peerClipBounds(m *Invitation) {
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

// peerClipBounds comes after peers.
func (r *reader) peerClipBounds(m *Invitation) {
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

// senderProofRequirement writes whether all edges have them; without edges none have.
func (w *writer) senderProofRequirement(m *Invitation) {
	for _, p := range m.Peers {
		if !p.RequiresSenderProofs {
			return
		}
	}
	if len(m.Peers) > 0 {
		w.bool(true)
	}
}

// senderProofRequirement comes after peers.
func (r *reader) senderProofRequirement(m *Invitation) {
	if yes := r.bool("proofs"); r.err == nil && (!yes || len(m.Peers) == 0) {
		r.failf("a section proofs without them, or without edges")
	}
	for i := range m.Peers {
		m.Peers[i].RequiresSenderProofs = true
	}
}

func (w *writer) endedEdges(m *Invitation) {
	if len(m.EndedEdges) == 0 {
		return
	}
	w.u32(uint32(len(m.EndedEdges)))
	for _, e := range m.EndedEdges {
		w.str(string(e.NeighborID))
		w.u8(uint8(e.Reason))
	}
}

func (r *reader) endedEdges(m *Invitation) {
	last := AgentID("")
	for range r.listLength("edges", MaxNeighbors, 4) {
		e := EndedEdge{r.ascendingNeighborID(last), EdgeEndReason(r.enum("reason", uint8(lastEdgeEndReason)))}
		last = e.NeighborID
		m.EndedEdges = append(m.EndedEdges, e)
	}
}
