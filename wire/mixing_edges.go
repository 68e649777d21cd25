package wire

import "math"

// EdgeEndReason is the reason why an edge was removed. Metrics use its name as a label value.
type EdgeEndReason uint8

// Reasons for removing an edge.
const (
	// EdgeEndTooDistant means that the parameters of the two agents differ much more than the parameters of other
	// pairs.
	EdgeEndTooDistant EdgeEndReason = iota + 1
	// EdgeEndNotMixing means that the agent at the other end does not mix, according to most of that agent's
	// neighbours.
	EdgeEndNotMixing
	lastEdgeEndReason = EdgeEndNotMixing
)

// String returns the name of the reason in metrics and logs.
func (r EdgeEndReason) String() string { return enumName(uint8(r), "far", "still") }

// EdgeEndReasons returns all values of EdgeEndReason.
func EdgeEndReasons() []EdgeEndReason { return allEnumValues(lastEdgeEndReason) }

// EndedEdge describes an edge between two agents that is excluded from mixing for some rounds.
type EndedEdge struct {
	NeighborID AgentID // id of the agent at the other end of the edge
	Reason     EdgeEndReason
}

// MixingEdgeMeasurement holds what an agent has measured about the exchange of parameters with one neighbour.
type MixingEdgeMeasurement struct {
	NeighborID   AgentID // neighbour with which the parameters were exchanged
	AppliedFlows uint32
	ClippedFlows uint32 // number of applied flows that exceeded the clip bound τ and were therefore clipped
	// mean distance ‖x_j − x_i‖ between the parameters of the two agents over the applied flows; at most MaxFloat64
	MeanParameterDistance float64
	// MixingResponseRatio measures how far neighbour j moves towards agent i: Σ⟨x_j' − x_j, x_i − x_j⟩ / Σ‖x_i − x_j‖²,
	// where x_i are the parameters of agent i, and x_j and x_j' are consecutive snapshots of neighbour j. If the
	// neighbour mixes, the ratio is at least about the weight of the edge.
	MixingResponseRatio float64
}

// MixingEdgeMeasurements contains an agent's measurements of its edges in a block since its last report. Zero means
// that there are no measurements.
type MixingEdgeMeasurements struct {
	MixingBlockRound RoundID                 // round for which the edges were defined
	Edges            []MixingEdgeMeasurement // measurements in ascending order of NeighborID
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
			ClippedFlows: r.u32(), MeanParameterDistance: r.f64("mean distance"),
			MixingResponseRatio: r.f64("mixing response ratio")}
		if r.err == nil && (e.ClippedFlows > e.AppliedFlows || e.MeanParameterDistance < 0) {
			r.failf("invalid measurement of the edge to neighbour %q: %d of %d parameter differences clipped, mean "+
				"distance %v", e.NeighborID, e.ClippedFlows, e.AppliedFlows,
				e.MeanParameterDistance)
		}
		last = e.NeighborID
		m.Edges = append(m.Edges, e)
	}
}

// ascendingNeighborID decodes an agent id that must be greater than before, the previous id of the list.
func (r *reader) ascendingNeighborID(before AgentID) AgentID {
	id := AgentID(r.str("neighbour", MaxAgentID))
	if r.err != nil {
		return ""
	}
	if err := id.ValidateNonCoordinator(); err != nil {
		r.fail(err)
	}
	if id <= before {
		r.failf("neighbour %q is listed after %q: neighbours must be in ascending order", id, before)
	}
	return id
}

// peerClipBounds encodes the clip bound of each neighbour. It writes no bytes if no neighbour has a bound.
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

// peerClipBounds decodes the clip bound of each neighbour. It must be called after mixingPeers, which decodes the list
// of neighbours.
func (r *reader) peerClipBounds(m *Invitation) {
	all := r.f64s("clip bound", MaxNeighbors)
	if r.err == nil && len(all) != len(m.Peers) {
		r.failf("got %d clip bounds for %d edges: one bound per edge is required", len(all), len(m.Peers))
	}
	if r.err != nil {
		return
	}
	for i, tau := range all {
		if tau < 0 {
			r.failf("clip bound of the edge to %q is %v: must not be negative", m.Peers[i].ID, tau)
		}
		m.Peers[i].ClipBound = tau
	}
}

// senderProofRequirement encodes that sender proofs are required. It writes no bytes if an edge does not require proofs
// or there are no edges.
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

// senderProofRequirement decodes whether messages require sender proofs. It must be called after mixingPeers, which
// decodes the list of neighbours.
func (r *reader) senderProofRequirement(m *Invitation) {
	if yes := r.bool("sender proofs"); r.err == nil && (!yes || len(m.Peers) == 0) {
		r.failf("section mixing_proofs must be true and requires edges")
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
