package wire

// This file defines the messages that the coordinator sends to a single agent.

// Invitation asks one agent to participate in an announced round. It contains the agent's id, because a broker could
// deliver it to another agent with a different weight.
type Invitation struct {
	Agent            AgentID
	Announcement     Digest // digest of the envelope of the announcement
	RemainingMillis  uint32 // milliseconds until the deadline of the round
	StepSizeWeight   float64
	MustSendUpdate   bool // whether the agent must send an update; if false, the agent only trains and mixes
	MixingBlockRound RoundID
	Peers            []MixingPeer // neighbours with which the agent mixes, in ascending order of id
	// edges of the agent that are excluded from mixing for some rounds, in ascending order of neighbour id
	EndedEdges     []EndedEdge
	ReportedRows   uint64 // number of rows that the agent reported before the draw; 0 means unknown
	KeyAttestation Signature
	Extra          UnknownSections
}

// MixingPeer describes a neighbour with which an agent exchanges parameters.
type MixingPeer struct {
	ID           AgentID
	BootEpoch    Epoch           // boot epoch of the neighbour for which the edge is valid
	PublicKey    X25519PublicKey // public key for encrypting messages to the neighbour
	MixingWeight float64         // weight w_ij of the edge between agents i and j
	ClipBound    float64         // clip bound τ_ij of the edge between agents i and j; 0 means no clipping
	// RequiresSenderProofs is true if messages on this edge must contain a proof of their sender. It has the same value
	// for all edges of a block.
	RequiresSenderProofs bool
}

// Body returns the encoded message.
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

// optionalU64 encodes a number. It writes no bytes for 0.
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
			r.failf("peer %q is listed after %q: peers must be in ascending order", p.ID, m.Peers[n-1].ID)
		}
		m.Peers = append(m.Peers, p)
	}
}

// DecodeInvitation decodes the body of a TypeInvitation envelope.
func DecodeInvitation(body []byte) (Invitation, error) {
	r := reader{unread: body}
	m := Invitation{Agent: AgentID(r.str("agent", MaxAgentID)), Announcement: r.digest(), RemainingMillis: r.u32(),
		StepSizeWeight: r.f64("weight"), MustSendUpdate: r.bool("must send update")}
	m.Extra = r.bodySections(m.sectionCodecs())
	if err := m.Agent.ValidateNonCoordinator(); err != nil {
		r.fail(err)
	}
	if r.err == nil && m.StepSizeWeight <= 0 {
		r.failf("weight is %v: must be positive", m.StepSizeWeight)
	}
	return m, r.finish("invitation")
}

// SelectionStatus is the status of an agent that has not been invited to the announced round.
type SelectionStatus uint8

// Values of SelectionStatus.
const (
	// StatusSelectionPending means that the coordinator knows the agent but has not yet drawn the participants.
	StatusSelectionPending SelectionStatus = iota + 1
	// StatusNotSelected means that the agent was not drawn for the round.
	StatusNotSelected
)

// String returns the name of the status.
func (p SelectionStatus) String() string {
	return enumName(uint8(p), "counted", "not selected")
}

// HelloAnswer is the coordinator's answer to the hello message of an agent that is not invited and has not finished the
// round.
type HelloAnswer struct {
	Announcement    Digest
	SelectionStatus SelectionStatus
	ReportedRows    uint64 // number of rows that the agent reported in its last hello message
}

// Body returns the encoded message.
func (m *HelloAnswer) Body() []byte {
	var w writer
	w.digest(m.Announcement)
	w.u8(uint8(m.SelectionStatus))
	w.u64(m.ReportedRows)
	return w.encoded
}

// DecodeHelloAnswer decodes the body of a TypeHelloAnswer envelope.
func DecodeHelloAnswer(body []byte) (HelloAnswer, error) {
	r := reader{unread: body}
	m := HelloAnswer{Announcement: r.digest(), SelectionStatus: SelectionStatus(r.enum("selection status",
		uint8(StatusNotSelected))),
		ReportedRows: r.u64()}
	return m, r.finish("hello answer")
}

// UpdateAccepted confirms that the coordinator has stored an update on disk.
type UpdateAccepted struct{ Update Digest }

// Body returns the encoded message.
func (m *UpdateAccepted) Body() []byte { return m.Update[:] }

// DecodeUpdateAccepted decodes the body of a TypeUpdateAccepted envelope.
func DecodeUpdateAccepted(body []byte) (UpdateAccepted, error) {
	r := reader{unread: body}
	m := UpdateAccepted{Update: r.digest()}
	return m, r.finish("update accepted")
}

// UpdateRefusalReason is the reason why the coordinator refuses an update. Metrics use its name as a label value.
type UpdateRefusalReason uint8

// Reasons for refusing an update.
const (
	RefuseLate UpdateRefusalReason = iota + 1
	RefuseNotSelected
	RefuseWrongRound
	RefuseWrongBase
	RefuseWrongSchema
	RefuseConflict // a different update of the agent was already accepted
	RefuseTooLarge
	RefuseBadHash
	RefuseNotFinite
	RefuseNormTooLarge
	RefuseMalformed
	RefuseUnsupported       // the update has a mandatory section that the coordinator does not support
	lastUpdateRefusalReason = RefuseUnsupported
)

// String returns the name of the reason in metrics and logs.
func (r UpdateRefusalReason) String() string {
	return enumName(uint8(r), "late", "not_selected", "wrong_round", "wrong_base", "wrong_schema", "conflict",
		"too_large",
		"bad_hash", "not_finite", "norm", "malformed", "unsupported")
}

// UpdateRefusalReasons returns all values of UpdateRefusalReason.
func UpdateRefusalReasons() []UpdateRefusalReason { return allEnumValues(lastUpdateRefusalReason) }

// UpdateRefused reports that an update was permanently refused.
type UpdateRefused struct {
	Update Digest
	Reason UpdateRefusalReason
}

// Body returns the encoded message.
func (m *UpdateRefused) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeUpdateRefused decodes the body of a TypeUpdateRefused envelope.
func DecodeUpdateRefused(body []byte) (UpdateRefused, error) {
	r := reader{unread: body}
	m := UpdateRefused{Update: r.digest(), Reason: UpdateRefusalReason(r.enum("reason",
		uint8(lastUpdateRefusalReason)))}
	return m, r.finish("update refused")
}

// ChunkRange is a range of chunks from First to Last, inclusive.
type ChunkRange struct{ First, Last uint32 }

// ChunkCredit permits an agent to send the given chunks of its update for a limited time.
type ChunkCredit struct {
	Update      Digest
	LeaseMillis uint32
	Chunks      []ChunkRange
}

// Body returns the encoded message.
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

// DecodeChunkCredit decodes the body of a TypeChunkCredit envelope.
func DecodeChunkCredit(body []byte) (ChunkCredit, error) {
	r := reader{unread: body}
	m := ChunkCredit{Update: r.digest(), LeaseMillis: r.u32()}
	n := r.listLength("chunks", MaxCreditRanges, 8)
	for range n {
		c := ChunkRange{r.u32(), r.u32()}
		if c.First > c.Last || c.Last >= MaxBlobChunks {
			r.failf("invalid chunk range %d to %d", c.First, c.Last)
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
