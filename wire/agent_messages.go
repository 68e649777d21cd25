package wire

// The messages from an agent.

// PresenceState is what presence says of an agent.
type PresenceState uint8

// The states of presence.
const (
	PresenceOnline PresenceState = iota + 1
	PresenceOffline
	PresenceLost // said by the broker, as the agent's will
)

// String returns the state's name.
func (s PresenceState) String() string { return enumName(uint8(s), "online", "offline", "lost") }

// Presence is retained for each agent. It is a hint: nothing depends on it.
// The envelope's epoch is the agent's boot epoch.
type Presence struct {
	HasVolatileStorage bool // "durable: false": its updates do not survive a power cut
	State              PresenceState
	InstanceNonce      uint64 // drawn at each start: two devices with one identity share an epoch, never a nonce
	MaxProtocolVersion uint8  // highest protocol version
	SoftwareVersion    string // for people
	Extra              UnknownSections
}

// Body returns the message's encoding.
func (m *Presence) Body() []byte {
	var w writer
	w.u8(uint8(m.State))
	w.u64(m.InstanceNonce)
	w.u8(m.MaxProtocolVersion)
	w.str(m.SoftwareVersion)
	w.bodySections(m.sectionCodecs(), m.Extra)
	return w.encoded
}

func (m *Presence) sectionCodecs() []sectionCodec {
	return []sectionCodec{{"durable", IgnoreUnknownSection, func(w *writer) {
		if m.HasVolatileStorage {
			w.bool(false)
		}
	}, func(r *reader) { m.HasVolatileStorage = !r.bool("durable") }}}
}

// DecodePresence reads the body of a TypePresence envelope.
func DecodePresence(body []byte) (Presence, error) {
	r := reader{unread: body}
	m := Presence{State: PresenceState(r.enum("state", uint8(PresenceLost))), InstanceNonce: r.u64(),
		MaxProtocolVersion: r.u8(),
		SoftwareVersion:    r.str("software", MaxName)}
	m.Extra = r.bodySections(m.sectionCodecs())
	return m, r.finish("presence")
}

// DeclineReason tells why an agent does not take part. It is a metric's label.
type DeclineReason uint8

// The reasons for declining.
const (
	DeclineBadData       DeclineReason = iota + 1 // its data do not fit the task
	DeclineTooFewRows                             // fewer rows than may be spoken of
	DeclineUnsupported                            // a task that this build cannot do
	DeclineNoTime                                 // the time left is too short
	DeclineDiverged                               // its local steps left the finite numbers
	DeclineFetchFailed                            // the model or task could not be had
	_                                             // no program says this one
	DeclineUpdateRefused                          // an update of it for this round was refused
	DeclineTrafficBudget                          // the rest of its month's bytes is too small for a round
	// By the rules of the device's owner:
	DeclineBusy       // its load is too high
	DeclineHot        // it is too hot
	DeclineLowBattery // its battery is low, or it is not on mains
	DeclineLowMemory  // too little memory is available
	DeclineTimeWindow // not at this time of day

	DeclineStorageFailing // its disk does not take what must be on it first
	lastDecline           = DeclineStorageFailing
)

// String returns the reason's name, as metrics and logs show it.
func (r DeclineReason) String() string {
	return enumName(uint8(r), "bad_data", "too_few_rows", "unsupported", "no_time", "diverged", "fetch", "stopping",
		"refused", "budget",
		"busy", "hot", "battery", "memory", "window", "storage")
}

// DeclineReasons returns all reasons, for closed label sets.
func DeclineReasons() []DeclineReason { return allEnumValues(lastDecline) }

// Hello tells the coordinator that an agent is there. It is repeated until answered.
type Hello struct {
	InstanceNonce        uint64
	FollowedAnnouncement Digest          // the newest that the agent obeys
	UnfitReason          DeclineReason   // 0 when the agent can do the announced task
	Samples              uint64          // rows of local data that fit the task
	PendingUpdate        Digest          // an update that it holds for this round, else zero
	PeerKey              X25519PublicKey // of its seals towards neighbours; zero when it does not mix
	Location             AgentLocation
	// whom it has found and would mix with, by id, where agents look for each other
	ChosenNeighbors       []AgentID
	SupportsClippedMixing bool                   // it knows clipped mixing, and proofs between neighbours
	EdgeMeasurements      MixingEdgeMeasurements // of its last block, where flows are clipped
	FateRequest           UpdateFateRequest      // for the outcome of an earlier round's update
	DataProblem           DataProblem            // of its data, if it is unfit for them
	Residuals             CandidateResiduals     // of a model that is rolled out
	NewRows               NewRowsReport          // where rounds wait for them
	Evaluation            Evaluation             // of a base model that was to be evaluated
	// the AnswerProbability of the announcement by which it was drawn to answer; 0 = it always answers
	AnswerProbability uint32
	// the SealKey.ID of the group's key, which the agent lacks; 0 = it has it, or needs none
	MissingGroupKeyID uint64
	MissingParts      MissingBlobParts // of a blob that it pulls
	Extra             UnknownSections
}

// DataProblem is the fault in an agent's data that keeps it from taking part. Its texts are for people.
type DataProblem struct {
	Column string // or input; empty = all
	// Reason is the reason why values of the column are not used. Other problems have their description here.
	Reason                      string
	ExampleLocation             string // file and line, or topic, of an unusable value
	UnusableValues, TotalValues uint64 // the numbers of values, or of lines; 0 = unknown
}

// MaxDataProblemReason bounds the reason of a misfit, in bytes.
const MaxDataProblemReason = 128

// UpdateFateRequest is an update of the announced run whose round is over, and whose outcome the agent has not read.
type UpdateFateRequest struct {
	Round  RoundID // 0 = none
	Update Digest
}

// AgentLocation is where an agent stands, in metres or any unit common to the federation, if it tells.
type AgentLocation struct {
	IsKnown bool
	X, Y    float64
}

// Body returns the message's encoding.
func (m *Hello) Body() []byte {
	var w writer
	w.u64(m.InstanceNonce)
	w.digest(m.FollowedAnnouncement)
	w.u8(uint8(m.UnfitReason))
	w.u64(m.Samples)
	w.digest(m.PendingUpdate)
	w.bodySections(m.sectionCodecs(), m.Extra)
	return w.encoded
}

func (m *Hello) sectionCodecs() []sectionCodec {
	return []sectionCodec{
		{"edges", IgnoreUnknownSection, func(w *writer) { w.edgeMeasurements(&m.EdgeMeasurements) },
			func(r *reader) { r.edgeMeasurements(&m.EdgeMeasurements) }},
		m.Evaluation.evaluationCodec(),
		m.Evaluation.externalMetricsCodec(),
		{"key", IgnoreUnknownSection, func(w *writer) { w.optionalU64(m.MissingGroupKeyID) },
			func(r *reader) { m.MissingGroupKeyID = r.u64() }},
		m.MissingParts.missingPartsCodec(),
		{"location", IgnoreUnknownSection, func(w *writer) {
			if m.Location != (AgentLocation{}) {
				w.agentLocation(m.Location)
			}
		}, func(r *reader) { m.Location = r.agentLocation() }},
		{"misfit", IgnoreUnknownSection, func(w *writer) { w.dataProblem(m.DataProblem) },
			func(r *reader) { m.DataProblem = r.dataProblem() }},
		{"mixing", IgnoreUnknownSection, func(w *writer) { w.helloMixingFields(m) },
			func(r *reader) { r.helloMixingFields(m) }},
		{"mixing_clip", IgnoreUnknownSection, func(w *writer) {
			if m.SupportsClippedMixing {
				w.bool(true)
			}
		}, func(r *reader) { m.SupportsClippedMixing = r.bool("clips") }},
		m.NewRows.newRowsCodec(),
		{"outcome", IgnoreUnknownSection, func(w *writer) {
			if m.FateRequest != (UpdateFateRequest{}) {
				w.u64(uint64(m.FateRequest.Round))
				w.digest(m.FateRequest.Update)
			}
		}, func(r *reader) { m.FateRequest = UpdateFateRequest{RoundID(r.u64()), r.digest()} }},
		{"residuals", IgnoreUnknownSection, func(w *writer) { w.candidateResiduals(&m.Residuals) },
			func(r *reader) { r.candidateResiduals(&m.Residuals) }},
		rowCountSectionCodec("respond", &m.AnswerProbability),
	}
}

func (w *writer) dataProblem(m DataProblem) {
	if m == (DataProblem{}) {
		return
	}
	w.str(m.Column)
	w.str(m.Reason)
	w.str(m.ExampleLocation)
	w.u64(m.UnusableValues)
	w.u64(m.TotalValues)
}

func (r *reader) dataProblem() DataProblem {
	return DataProblem{r.str("column", MaxName), r.str("reason", MaxDataProblemReason), r.str("where", MaxName),
		r.u64(), r.u64()}
}

func (w *writer) helloMixingFields(m *Hello) {
	if m.PeerKey == (X25519PublicKey{}) && len(m.ChosenNeighbors) == 0 {
		return
	}
	w.encoded = append(w.encoded, m.PeerKey[:]...)
	w.u32(uint32(len(m.ChosenNeighbors)))
	for _, id := range m.ChosenNeighbors {
		w.str(string(id))
	}
}

func (r *reader) helloMixingFields(m *Hello) {
	copy(m.PeerKey[:], r.takeBytes(len(m.PeerKey)))
	if m.PeerKey.hasSmallOrder() {
		r.failf("peer key %x is of small order: nobody can seal for it", m.PeerKey[:])
	}
	for range r.listLength("neighbours", MaxNeighbors, 3) {
		id := AgentID(r.str("neighbour", MaxAgentID))
		if err := id.ValidateNonCoordinator(); r.err == nil && err != nil {
			r.fail(err)
		}
		if n := len(m.ChosenNeighbors); n > 0 && m.ChosenNeighbors[n-1] >= id {
			r.failf("neighbour %q after %q: they must ascend", id, m.ChosenNeighbors[n-1])
		}
		m.ChosenNeighbors = append(m.ChosenNeighbors, id)
	}
}

func (w *writer) agentLocation(l AgentLocation) {
	w.bool(l.IsKnown)
	w.f64(l.X)
	w.f64(l.Y)
}

func (r *reader) agentLocation() AgentLocation {
	return AgentLocation{r.bool("location known"), r.f64("x"), r.f64("y")}
}

// DecodeHello reads the body of a TypeHello envelope.
func DecodeHello(body []byte) (Hello, error) {
	r := reader{unread: body}
	m := Hello{
		InstanceNonce: r.u64(), FollowedAnnouncement: r.digest(), UnfitReason: DeclineReason(r.optionalEnum("reason",
			uint8(lastDecline))),
		Samples: r.u64(), PendingUpdate: r.digest(),
	}
	m.Extra = r.bodySections(m.sectionCodecs())
	return m, r.finish("hello")
}

// InvitationAccepted answers an invitation: the agent is at work.
type InvitationAccepted struct{ Announcement Digest }

// Body returns the message's encoding.
func (m *InvitationAccepted) Body() []byte { return m.Announcement[:] }

// DecodeInvitationAccepted reads the body of a TypeInvitationAccepted envelope.
func DecodeInvitationAccepted(body []byte) (InvitationAccepted, error) {
	r := reader{unread: body}
	m := InvitationAccepted{Announcement: r.digest()}
	return m, r.finish("joined")
}

// InvitationDeclined answers an invitation: the round goes on without the agent.
type InvitationDeclined struct {
	Announcement Digest
	Reason       DeclineReason
}

// Body returns the message's encoding.
func (m *InvitationDeclined) Body() []byte {
	var w writer
	w.digest(m.Announcement)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeInvitationDeclined reads the body of a TypeInvitationDeclined envelope.
func DecodeInvitationDeclined(body []byte) (InvitationDeclined, error) {
	r := reader{unread: body}
	m := InvitationDeclined{Announcement: r.digest(), Reason: DeclineReason(r.enum("reason", uint8(lastDecline)))}
	return m, r.finish("declined")
}

// Update is the manifest of an agent's contribution to a round, sent before
// its chunks. Its identity is the envelope's run, round and sender with Base;
// the payload's hash is its digest.
type Update struct {
	Kind                RoundKind
	BaseModelDigest     Digest // hash of the model it started from; zero in a statistics round
	PayloadManifest     Manifest
	InlinePayload       []byte  // the whole payload, where it has at most MaxInlineUpdate bytes
	LocalSteps          uint32  // E_k that were taken
	Samples             uint64  // rows of local data
	RiskBefore          float64 // local risk at the base model
	RiskAfter           float64 // local risk after the local steps
	SecondsPerLocalStep float64 // seconds per local step, measured
	// chunks, the first ones, that follow this message without having been lent
	UnsolicitedChunks uint32
	EdgeMeasurements  MixingEdgeMeasurements // of the block, where flows are clipped
	Extra             UnknownSections
}

// Body returns the message's encoding.
func (m *Update) Body() []byte {
	var w writer
	w.u8(uint8(m.Kind))
	w.digest(m.BaseModelDigest)
	w.encoded = m.PayloadManifest.AppendEncoding(w.encoded)
	w.bytes(m.InlinePayload)
	w.u32(m.LocalSteps)
	w.u64(m.Samples)
	w.f64(m.RiskBefore)
	w.f64(m.RiskAfter)
	w.f64(m.SecondsPerLocalStep)
	w.bodySections(m.sectionCodecs(), m.Extra)
	return w.encoded
}

func (m *Update) sectionCodecs() []sectionCodec {
	return append(updateCodecSectionCodecs(&m.PayloadManifest.Codec, DeclineUnknownSection),
		chunkCountSectionCodec("ahead",
			&m.UnsolicitedChunks),
		sectionCodec{"edges", IgnoreUnknownSection, func(w *writer) { w.edgeMeasurements(&m.EdgeMeasurements) },
			func(r *reader) { r.edgeMeasurements(&m.EdgeMeasurements) }})
}

// DecodeUpdate reads the body of a TypeUpdate envelope. An inline payload is
// held against its length, not yet against its hash.
func DecodeUpdate(body []byte) (Update, error) {
	r := reader{unread: body}
	m := Update{
		Kind: RoundKind(r.enum("kind", uint8(KindTraining))), BaseModelDigest: r.digest(),
		PayloadManifest: r.manifest(), InlinePayload: r.bytes("payload", MaxInlineUpdate),
		LocalSteps: r.u32(), Samples: r.u64(),
		RiskBefore: r.f64("risk before"), RiskAfter: r.f64("risk after"), SecondsPerLocalStep: r.f64("step time"),
	}
	m.Extra = r.bodySections(m.sectionCodecs())
	if r.err == nil && len(m.InlinePayload) > 0 && len(m.InlinePayload) != int(m.PayloadManifest.BlobLength) {
		r.failf("payload of %d bytes, the manifest says %d", len(m.InlinePayload), m.PayloadManifest.BlobLength)
	}
	if len(m.InlinePayload) == 0 {
		m.InlinePayload = nil
	}
	return m, r.finish("update")
}
