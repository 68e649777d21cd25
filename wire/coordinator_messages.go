package wire

// The messages from the coordinator to one agent.

// Invitation asks one agent to take part in an announced round. It names the
// agent, since a broker could give it to another, with another weight.
type Invitation struct {
	Agent            AgentID
	Announcement     Digest       // of the announcement's envelope
	RemainingMillis  uint32       // milliseconds until the round's deadline: clocks of devices are not trusted
	StepSizeWeight   float64      // K·p_k for the local step size; 1 where weights are applied at the server
	MustSendUpdate   bool         // the agent is to send its update; else it only trains and mixes
	MixingBlockRound RoundID      // the round for which the edges were made: this one, but where blocks have no end
	Peers            []MixingPeer // whom it mixes with, in id order
	EndedEdges       []EndedEdge  // by ID: with whom it does not mix for some rounds, though the graph has the edge
	ReportedRows     uint64       // rows that its hello before the draw told of; 0 = not known
	KeyAttestation   Signature    // attests the agent's key to its neighbours (AgentKeyAttestationText); zero = none
	Extra            UnknownSections
}

// MixingPeer is the other end of one of an agent's edges.
type MixingPeer struct {
	ID           AgentID
	BootEpoch    Epoch           // the start of its program that the edge is to
	PublicKey    X25519PublicKey // it seals with
	MixingWeight float64         // w_ij
	ClipBound    float64         // τ_ij of clipped mixing; 0 = no bound
	// RequiresSenderProofs: what is said on this edge proves which neighbour says it. So it is on all edges of a block,
	// or on none.
	RequiresSenderProofs bool
}

// Body returns the invitation's encoding.
func (m *Invitation) Body() []byte {
	var w writer
	w.str(string(m.Agent))
	w.digest(m.Announcement)
	w.u32(m.RemainingMillis)
	w.f64(m.StepSizeWeight)
	w.bool(m.MustSendUpdate)
	w.bodySections(m.sectionCodecs(), m.Extra)
	return w.encoded
}

func (m *Invitation) sectionCodecs() []sectionCodec {
	return []sectionCodec{
		{"mixing", DeclineUnknownSection, func(w *writer) { w.mixingPeers(m) }, func(r *reader) { r.mixingPeers(m) }},
		{"mixing_clip", DeclineUnknownSection, func(w *writer) { w.peerClipBounds(m) },
			func(r *reader) { r.peerClipBounds(m) }},
		{"mixing_ended", IgnoreUnknownSection, func(w *writer) { w.endedEdges(m) },
			func(r *reader) { r.endedEdges(m) }},
		{"mixing_proofs", DeclineUnknownSection, func(w *writer) { w.senderProofRequirement(m) },
			func(r *reader) { r.senderProofRequirement(m) }},
		{"rows", IgnoreUnknownSection, func(w *writer) { w.optionalU64(m.ReportedRows) },
			func(r *reader) { m.ReportedRows = r.u64() }},
		{"word", IgnoreUnknownSection, func(w *writer) {
			if m.KeyAttestation != (Signature{}) {
				w.encoded = append(w.encoded, m.KeyAttestation[:]...)
			}
		}, func(r *reader) { copy(m.KeyAttestation[:], r.takeBytes(len(m.KeyAttestation))) }},
	}
}

// optionalU64 writes a number that is not there if it is 0.
func (w *writer) optionalU64(n uint64) {
	if n > 0 {
		w.u64(n)
	}
}

func (w *writer) mixingPeers(m *Invitation) {
	if m.MixingBlockRound == 0 && len(m.Peers) == 0 {
		return
	}
	w.u64(uint64(m.MixingBlockRound))
	w.u32(uint32(len(m.Peers)))
	for _, p := range m.Peers {
		w.str(string(p.ID))
		w.u64(uint64(p.BootEpoch))
		w.encoded = append(w.encoded, p.PublicKey[:]...)
		w.f64(p.MixingWeight)
	}
}

func (r *reader) mixingPeers(m *Invitation) {
	m.MixingBlockRound = RoundID(r.u64())
	for range r.listLength("peers", MaxNeighbors, 51) {
		p := MixingPeer{ID: AgentID(r.str("peer", MaxAgentID)), BootEpoch: Epoch(r.u64())}
		copy(p.PublicKey[:], r.takeBytes(len(p.PublicKey)))
		p.MixingWeight = r.f64("edge weight")
		if err := p.ID.ValidateNonCoordinator(); err != nil {
			r.fail(err)
		}
		if n := len(m.Peers); n > 0 && m.Peers[n-1].ID >= p.ID {
			r.failf("peer %q after %q: they must ascend", p.ID, m.Peers[n-1].ID)
		}
		m.Peers = append(m.Peers, p)
	}
}

// DecodeInvitation reads the body of a TypeInvitation envelope.
func DecodeInvitation(body []byte) (Invitation, error) {
	r := reader{unread: body}
	m := Invitation{Agent: AgentID(r.str("agent", MaxAgentID)), Announcement: r.digest(), RemainingMillis: r.u32(),
		StepSizeWeight: r.f64("weight"), MustSendUpdate: r.bool("uploads")}
	m.Extra = r.bodySections(m.sectionCodecs())
	if err := m.Agent.ValidateNonCoordinator(); err != nil {
		r.fail(err)
	}
	if r.err == nil && m.StepSizeWeight <= 0 {
		r.failf("weight is %v, must be positive", m.StepSizeWeight)
	}
	return m, r.finish("invitation")
}

// SelectionStatus tells an agent where it stands in a round that does not need it.
type SelectionStatus uint8

// The places.
const (
	// StatusSelectionPending: known to the coordinator, which has not drawn yet.
	StatusSelectionPending SelectionStatus = iota + 1
	// StatusNotSelected: the round goes on without it.
	StatusNotSelected
)

// String returns the place's name.
func (p SelectionStatus) String() string { return enumName(uint8(p), "counted", "not selected") }

// HelloAnswer answers the hello of an agent that is neither invited nor done.
type HelloAnswer struct {
	Announcement    Digest
	SelectionStatus SelectionStatus
	ReportedRows    uint64 // rows that the agent's newest hello has told of
}

// Body returns the standing's encoding.
func (m *HelloAnswer) Body() []byte {
	var w writer
	w.digest(m.Announcement)
	w.u8(uint8(m.SelectionStatus))
	w.u64(m.ReportedRows)
	return w.encoded
}

// DecodeHelloAnswer reads the body of a TypeHelloAnswer envelope.
func DecodeHelloAnswer(body []byte) (HelloAnswer, error) {
	r := reader{unread: body}
	m := HelloAnswer{Announcement: r.digest(), SelectionStatus: SelectionStatus(r.enum("place",
		uint8(StatusNotSelected))),
		ReportedRows: r.u64()}
	return m, r.finish("standing")
}

// UpdateAccepted says that an update is on the coordinator's disk.
type UpdateAccepted struct{ Update Digest }

// Body returns the message's encoding.
func (m *UpdateAccepted) Body() []byte { return m.Update[:] }

// DecodeUpdateAccepted reads the body of a TypeUpdateAccepted envelope.
func DecodeUpdateAccepted(body []byte) (UpdateAccepted, error) {
	r := reader{unread: body}
	m := UpdateAccepted{Update: r.digest()}
	return m, r.finish("accepted")
}

// UpdateRefusalReason tells why an update is not taken. It is a metric's label.
type UpdateRefusalReason uint8

// The reasons for refusing an update.
const (
	RefuseLate UpdateRefusalReason = iota + 1
	RefuseNotSelected
	RefuseWrongRound
	RefuseWrongBase
	RefuseWrongSchema
	RefuseConflict // another digest after one was accepted
	RefuseTooLarge
	RefuseBadHash
	RefuseNotFinite
	RefuseNormTooLarge
	RefuseMalformed
	RefuseUnsupported       // it has a section that this coordinator does not know and must not pass over
	lastUpdateRefusalReason = RefuseUnsupported
)

// String returns the reason's name, as metrics and logs show it.
func (r UpdateRefusalReason) String() string {
	return enumName(uint8(r), "late", "not_selected", "wrong_round", "wrong_base", "wrong_schema", "conflict",
		"too_large",
		"bad_hash", "not_finite", "norm", "malformed", "unsupported")
}

// UpdateRefusalReasons returns all reasons, for closed label sets.
func UpdateRefusalReasons() []UpdateRefusalReason { return allEnumValues(lastUpdateRefusalReason) }

// UpdateRefused says that an update was not taken and will not be.
type UpdateRefused struct {
	Update Digest
	Reason UpdateRefusalReason
}

// Body returns the message's encoding.
func (m *UpdateRefused) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeUpdateRefused reads the body of a TypeUpdateRefused envelope.
func DecodeUpdateRefused(body []byte) (UpdateRefused, error) {
	r := reader{unread: body}
	m := UpdateRefused{Update: r.digest(), Reason: UpdateRefusalReason(r.enum("reason",
		uint8(lastUpdateRefusalReason)))}
	return m, r.finish("refused")
}

// ChunkRange is a run of chunks, First to Last inclusive.
type ChunkRange struct{ First, Last uint32 }

// ChunkCredit lends an agent the right to send the named chunks for a while.
type ChunkCredit struct {
	Update      Digest
	LeaseMillis uint32 // milliseconds
	Chunks      []ChunkRange
}

// Body returns the message's encoding.
func (m *ChunkCredit) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u32(m.LeaseMillis)
	w.u32(uint32(len(m.Chunks)))
	for _, c := range m.Chunks {
		w.u32(c.First)
		w.u32(c.Last)
	}
	return w.encoded
}

// DecodeChunkCredit reads the body of a TypeChunkCredit envelope.
func DecodeChunkCredit(body []byte) (ChunkCredit, error) {
	r := reader{unread: body}
	m := ChunkCredit{Update: r.digest(), LeaseMillis: r.u32()}
	n := r.listLength("chunks", MaxCreditRanges, 8)
	for range n {
		c := ChunkRange{r.u32(), r.u32()}
		if c.First > c.Last || c.Last >= MaxBlobChunks {
			r.failf("chunks %d to %d: not a range of chunks", c.First, c.Last)
		}
		m.Chunks = append(m.Chunks, c)
	}
	return m, r.finish("credit")
}

func allEnumValues[E ~uint8](last E) []E {
	all := make([]E, 0, last)
	for e := E(1); e <= last; e++ {
		all = append(all, e)
	}
	return all
}
