package wire

// This file defines the messages that an agent sends to the coordinator.

// PresenceState is the connection state of an agent.
type PresenceState uint8

// Values of PresenceState.
const (
	PresenceOnline PresenceState = iota + 1
	PresenceOffline
	PresenceLost // published by the broker, as the agent's MQTT will, when it loses the agent's connection
)

// String returns the name of the state.
func (s PresenceState) String() string { return enumName(uint8(s), "online", "offline", "lost") }

// Presence is the retained message with the connection state of an agent. The protocol of the rounds does not depend on
// this message. The epoch in its envelope is the boot epoch of the agent.
type Presence struct {
	HasVolatileStorage bool
	State              PresenceState
	InstanceNonce      uint64
	MaxProtocolVersion uint8  // highest supported protocol version
	SoftwareVersion    string // version of the agent program, for display
	Extra              UnknownSections
}

// Body returns the encoded message.
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

// DecodePresence decodes the body of a TypePresence envelope.
func DecodePresence(body []byte) (Presence, error) {
	r := reader{unread: body}
	m := Presence{State: PresenceState(r.enum("state", uint8(PresenceLost))), InstanceNonce: r.u64(),
		MaxProtocolVersion: r.u8(),
		SoftwareVersion:    r.str("software", MaxName)}
	m.Extra = r.bodySections(m.sectionCodecs())
	return m, r.finish("presence")
}

// DeclineReason is the reason why an agent does not take part in a round. Metrics use its name as a label value.
type DeclineReason uint8

// Reasons for declining a round.
const (
	DeclineBadData       DeclineReason = iota + 1 // the data do not fit the task
	DeclineTooFewRows                             // the agent has fewer rows than the task requires
	DeclineUnsupported                            // this version of the agent does not support the task
	DeclineNoTime                                 // too little time is left in the round
	DeclineDiverged                               // the local steps diverged to NaN or infinity
	DeclineFetchFailed                            // the model or task could not be downloaded
	_                                             // reserved for a reason of earlier versions
	DeclineUpdateRefused                          // the agent's update for this round was refused
	DeclineTrafficBudget                          // the monthly traffic budget is too small for another round
	// Limits set by the owner of the device:
	DeclineBusy // the load of the device is too high
	DeclineHot
	DeclineLowBattery // the battery is low, or the device is not on mains power
	DeclineLowMemory  // too little memory is available
	DeclineTimeWindow // the current time is outside the permitted time of day

	DeclineStorageFailing // required state cannot be written to disk before training
	lastDecline           = DeclineStorageFailing
)

// String returns the name of the reason in metrics and logs.
func (r DeclineReason) String() string {
	return enumName(uint8(r), "bad_data", "too_few_rows", "unsupported", "no_time", "diverged", "fetch", "stopping",
		"refused", "budget",
		"busy", "hot", "battery", "memory", "window", "storage")
}

// DeclineReasons returns all values of DeclineReason.
func DeclineReasons() []DeclineReason { return allEnumValues(lastDecline) }

// Hello is the message with which an agent reports its state to the coordinator. The agent repeats it until the
// coordinator answers.
type Hello struct {
	InstanceNonce        uint64
	FollowedAnnouncement Digest        // digest of the latest announcement that the agent has processed
	UnfitReason          DeclineReason // 0 if the agent can perform the announced task
	Samples              uint64        // number of rows of local data that fit the task
	PendingUpdate        Digest        // digest of the update that the agent has stored for this round; zero means none
	// PeerKey is the public key for encrypting messages between neighbours; zero if the agent does not mix.
	PeerKey  X25519PublicKey
	Location AgentLocation
	// ChosenNeighbors lists the neighbours that the agent has chosen, in ascending order of id. It is empty if agents
	// do not search for neighbours themselves.
	ChosenNeighbors       []AgentID
	SupportsClippedMixing bool // whether the agent supports clipped mixing and sender proofs
	// EdgeMeasurements contains measurements of the connections to the neighbours during the last mixing block. It is
	// empty unless clipping is enabled.
	EdgeMeasurements MixingEdgeMeasurements
	FateRequest      UpdateFateRequest  // request for the outcome of an update of an earlier round
	DataProblem      DataProblem        // explains UnfitReason if the local data are the cause
	Residuals        CandidateResiduals // residuals of the candidate model of a rollout
	NewRows          NewRowsReport      // number of new rows; unknown unless rounds wait for new rows
	Evaluation       Evaluation         // evaluation of a base model, if requested
	// AnswerProbability is the probability with which the agent was selected to answer, in units of 2⁻³². Zero means
	// that the agent always answers.
	AnswerProbability uint32
	// MissingGroupKeyID is the SealKey.ID of the group key that the agent lacks, or 0 if it lacks none.
	MissingGroupKeyID uint64
	MissingParts      MissingBlobParts // blob parts that the broker has not returned to the agent
	Extra             UnknownSections
}

// DataProblem describes why an agent's data cannot be used. The texts are for display.
type DataProblem struct {
	Column string // affected column or input; empty means all columns
	// Reason explains why values of the column are not used, or describes another problem.
	Reason                      string
	ExampleLocation             string // file and line, or topic, of an unusable value
	UnusableValues, TotalValues uint64 // numbers of unusable and of all values or lines; 0 means unknown
}

// MaxDataProblemReason is the maximum length in bytes of DataProblem.Reason.
const MaxDataProblemReason = 128

// UpdateFateRequest requests the outcome of an update whose round has ended. An agent sends it if it has not read the
// announced outcome.
type UpdateFateRequest struct {
	Round  RoundID // round in which the update was sent; 0 means no request
	Update Digest
}

// AgentLocation is the location of an agent, if known, in metres or another unit common to the federation.
type AgentLocation struct {
	IsKnown bool
	X, Y    float64
}

// Body returns the encoded message.
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
		}, func(r *reader) { m.SupportsClippedMixing = r.bool("clipped mixing") }},
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
	return DataProblem{r.str("column", MaxName), r.str("reason", MaxDataProblemReason), r.str("example "+
		"location", MaxName),
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
		r.failf("peer key %x has small order and cannot be used for encryption", m.PeerKey[:])
	}
	for range r.listLength("neighbours", MaxNeighbors, 3) {
		id := AgentID(r.str("neighbour", MaxAgentID))
		if err := id.ValidateNonCoordinator(); r.err == nil && err != nil {
			r.fail(err)
		}
		if n := len(m.ChosenNeighbors); n > 0 && m.ChosenNeighbors[n-1] >= id {
			r.failf("neighbour %q is listed after %q: neighbours must be in ascending order",
				id, m.ChosenNeighbors[n-1])
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

// DecodeHello decodes the body of a TypeHello envelope.
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

// InvitationAccepted is the answer of an agent that has started to work on the round.
type InvitationAccepted struct{ Announcement Digest }

// Body returns the encoded message.
func (m *InvitationAccepted) Body() []byte { return m.Announcement[:] }

// DecodeInvitationAccepted decodes the body of a TypeInvitationAccepted envelope.
func DecodeInvitationAccepted(body []byte) (InvitationAccepted, error) {
	r := reader{unread: body}
	m := InvitationAccepted{Announcement: r.digest()}
	return m, r.finish("invitation accepted")
}

// InvitationDeclined is the answer of an agent that does not take part in the round.
type InvitationDeclined struct {
	Announcement Digest
	Reason       DeclineReason
}

// Body returns the encoded message.
func (m *InvitationDeclined) Body() []byte {
	var w writer
	w.digest(m.Announcement)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeInvitationDeclined decodes the body of a TypeInvitationDeclined envelope.
func DecodeInvitationDeclined(body []byte) (InvitationDeclined, error) {
	r := reader{unread: body}
	m := InvitationDeclined{Announcement: r.digest(), Reason: DeclineReason(r.enum("reason", uint8(lastDecline)))}
	return m, r.finish("invitation declined")
}

// Update is the manifest of an agent's update, sent before the chunks with the content. Run, round, sender and
// BaseModelDigest identify the update, and the hash of the payload is its digest.
type Update struct {
	Kind                RoundKind
	BaseModelDigest     Digest // digest of the base model; zero in a statistics round
	PayloadManifest     Manifest
	InlinePayload       []byte  // complete payload if it has at most MaxInlineUpdate bytes; otherwise nil
	LocalSteps          uint32  // number E_k of local steps that the agent k has performed
	Samples             uint64  // number of rows of local data
	RiskBefore          float64 // risk of the base model on the local data
	RiskAfter           float64
	SecondsPerLocalStep float64 // measured mean time of a local step in seconds
	// UnsolicitedChunks is the number of leading chunks that the agent sends without waiting for the coordinator's
	// permission.
	UnsolicitedChunks uint32
	// measurements of the edges to neighbours; empty unless clipping is enabled
	EdgeMeasurements MixingEdgeMeasurements
	Extra            UnknownSections
}

// Body returns the encoded message.
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

// DecodeUpdate decodes the body of a TypeUpdate envelope. The length of an inline payload is checked, but not its hash.
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
		r.failf("payload has %d bytes, but the manifest specifies "+
			"%d", len(m.InlinePayload), m.PayloadManifest.BlobLength)
	}
	if len(m.InlinePayload) == 0 {
		m.InlinePayload = nil
	}
	return m, r.finish("update")
}
