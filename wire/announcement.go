package wire

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// AnnouncementPhase is the phase of a round in an announcement.
type AnnouncementPhase uint8

// Phases in the order in which a round passes through them.
const (
	// PhaseGathering asks every agent for a hello message, which reports that the agent is present.
	PhaseGathering AnnouncementPhase = iota + 1
	// PhaseOpen means that a round is in progress. The selected agents receive invitations.
	PhaseOpen
	// PhaseIdle means that no round is in progress. BaseModel is the newest model.
	PhaseIdle
	// PhaseFinished means that the run has ended. BaseModel is its result.
	PhaseFinished
)

// String returns the name of the phase.
func (p AnnouncementPhase) String() string {
	return enumName(uint8(p), "gathering", "open", "idle", "finished")
}

// RoundKind is the kind of result that the participants of a round compute.
type RoundKind uint8

// The kinds of rounds.
const (
	// KindStatistics collects counts, means and squared deviations of the task's columns.
	KindStatistics RoundKind = iota + 1
	// KindTraining collects the results of local training, either parameter changes or gradients.
	KindTraining
)

// RoundKinds returns all kinds.
func RoundKinds() []RoundKind { return []RoundKind{KindStatistics, KindTraining} }

// String returns the name of the kind.
func (k RoundKind) String() string { return enumName(uint8(k), "statistics", "training") }

// Announcement is the coordinator's retained message to all agents on the round topic.
type Announcement struct {
	Attempt          RoundAttempt
	Phase            AnnouncementPhase
	Kind             RoundKind
	BaseModelVersion ModelVersion
	// InstanceNonce is a random number that is drawn at each start of the coordinator. If two coordinators announce the
	// same position, the coordinator with the lower nonce stops.
	InstanceNonce    uint64
	LastEndedRound   RoundID     // latest round of the run that was closed or abandoned; 0 means none
	Task             BlobRef     // reference to the task; not set if no task is configured
	BaseModel        BlobRef     // reference to the base model w_{i−1} of round i; not set in a statistics round
	LastRoundOutcome BlobRef     // reference to the outcome of round LastEndedRound; not set if no round has ended
	UnknownBlobs     []NamedBlob // blobs whose names this version does not know, in ascending order of name
	UpdateSchema     Digest      // hash of the schema of the vectors that agents send in this round
	Seed             uint64      // seed from which agents derive their random numbers
	PriorLocalSteps  uint64      // number t of local steps in all earlier rounds, for the step size schedule
	// HelloSpreadMillis is the interval in milliseconds over which agents spread their hello messages in
	// PhaseGathering.
	HelloSpreadMillis uint32
	// RoundTimeoutMillis is the maximum duration of the round.
	RoundTimeoutMillis uint32
	// InitialCreditChunks is the number of leading chunks of its update that an agent may send right after the
	// manifest.
	InitialCreditChunks uint32
	// Selection contains the tags of the selected agents; empty if the selected agents receive invitations instead.
	Selection AgentSelection
	// MinNewRows is the number of new rows that an agent must have before the next round begins. The value 0 means that
	// rounds do not wait for new rows.
	MinNewRows uint32
	// MinEvaluationRows is the minimum number of held-out rows that an agent needs to evaluate BaseModel. The value 0
	// means that agents do not evaluate the model.
	MinEvaluationRows uint32
	ResponsePolicy    AgentResponsePolicy // rules that limit which agents answer; zero means that all agents answer
	Rollout           Rollout             // models that agents use for predictions; zero means that there is no rollout
	// IssuedAt is the time of the announcement according to the coordinator's clock, in seconds of Unix time. It never
	// decreases. The value 0 means that the time is unknown.
	IssuedAt uint64
	// ReleasedModelFile and CandidateModelFile refer to the files of the two models in Rollout. docs/MODEL.md describes
	// the format.
	ReleasedModelFile, CandidateModelFile BlobRef
	SealPublicKey                         X25519PublicKey
	Extra                                 UnknownSections
}

// NamedBlob is a blob of an announcement with its name.
type NamedBlob struct {
	Name string // name with 1 to MaxSectionName characters of a–z, 0–9 and _
	BlobRef
}

// Names of the blobs that this build uses.
const (
	blobBase      = "base"
	blobCandidate = "candidate"
	blobOutcome   = "outcome"
	blobReleased  = "released"
	blobTask      = "task"
)

// Body returns the encoded message.
func (a *Announcement) Body() []byte {
	var w writer
	w.u32(uint32(a.Attempt))
	w.u8(uint8(a.Phase))
	w.u8(uint8(a.Kind))
	w.u64(uint64(a.BaseModelVersion))
	w.u64(a.InstanceNonce)
	w.u64(uint64(a.LastEndedRound))
	w.announcedBlobs(a)
	w.digest(a.UpdateSchema)
	w.u64(a.Seed)
	w.u64(a.PriorLocalSteps)
	w.u32(a.HelloSpreadMillis)
	w.u32(a.RoundTimeoutMillis)
	w.bodySections(a.sectionCodecs(), a.Extra)
	return w.encoded
}

// sectionCodecs returns the codecs of the optional sections. An agent may ignore any section except "sealed". It then
// waits for an individual invitation, and for permission to send its update.
func (a *Announcement) sectionCodecs() []sectionCodec {
	return []sectionCodec{
		chunkCountSectionCodec("credit", &a.InitialCreditChunks),
		rowCountSectionCodec("evaluate", &a.MinEvaluationRows),
		{"issued", IgnoreUnknownSection, func(w *writer) {
			if a.IssuedAt > 0 {
				w.u64(a.IssuedAt)
			}
		}, func(r *reader) { a.IssuedAt = r.u64() }},
		rowCountSectionCodec("new_rows", &a.MinNewRows),
		a.ResponsePolicy.responsePolicyCodec(),
		{"rollout", IgnoreUnknownSection, func(w *writer) { w.rollout(&a.Rollout) },
			func(r *reader) { r.rollout(&a.Rollout) }},
		{"sealed", DeclineUnknownSection, func(w *writer) { w.sealedBlobs(a) }, func(r *reader) { r.sealedBlobs(a) }},
		{"seals", IgnoreUnknownSection, func(w *writer) {
			if a.SealPublicKey != (X25519PublicKey{}) {
				w.encoded = append(w.encoded, a.SealPublicKey[:]...)
			}
		}, func(r *reader) { copy(a.SealPublicKey[:], r.takeBytes(len(a.SealPublicKey))) }},
		{"selection", IgnoreUnknownSection, func(w *writer) { w.agentSelection(&a.Selection) },
			func(r *reader) { r.agentSelection(&a.Selection) }},
	}
}

// sealedBlobs encodes the names of the encrypted (sealed) blobs, the id of their common key, and the content of the
// inline blobs.
func (w *writer) sealedBlobs(a *Announcement) {
	var of []NamedBlob
	for _, b := range a.namedBlobs() {
		if b.GroupKeyID != 0 {
			of = append(of, b)
		}
	}
	if len(of) == 0 {
		return
	}
	w.u64(of[0].GroupKeyID)
	w.u32(uint32(len(of)))
	for _, b := range of {
		w.str(b.Name)
		w.bytes(b.SealedInline)
	}
}

func (r *reader) sealedBlobs(a *Announcement) {
	group, last := r.u64(), ""
	if r.err == nil && group == 0 {
		r.failf("the announcement lists sealed (encrypted) blobs without a group key id")
	}
	for range r.listLength("sealed blobs", MaxAnnouncedBlobs, 7) {
		last = r.ascendingName("blob", last)
		whole := r.bytes("sealed blob", MaxInlineBlobBytes+SealOverhead)
		b := a.blobByName(last)
		if r.err != nil {
			return
		}
		switch {
		case !b.IsSet() || len(b.Inline) > 0:
			r.failf("blob %s is listed as sealed (encrypted), but is missing or not sealed", last)
		case len(whole) > 0 && (len(whole) != int(b.Length)+SealOverhead || sha256.Sum256(whole) != b.ManifestHash):
			r.failf("the sealed content of blob %s does not match the announced length or hash", last)
		}
		if b.GroupKeyID = group; len(whole) > 0 {
			b.SealedInline = whole
		}
	}
}

// blobByName returns a pointer to the named blob, or to an empty BlobRef if the name is unknown.
func (a *Announcement) blobByName(name string) *BlobRef {
	switch name {
	case blobBase:
		return &a.BaseModel
	case blobCandidate:
		return &a.CandidateModelFile
	case blobOutcome:
		return &a.LastRoundOutcome
	case blobReleased:
		return &a.ReleasedModelFile
	case blobTask:
		return &a.Task
	}
	for i := range a.UnknownBlobs {
		if a.UnknownBlobs[i].Name == name {
			return &a.UnknownBlobs[i].BlobRef
		}
	}
	return &BlobRef{}
}

func (w *writer) announcedBlobs(a *Announcement) {
	all := a.namedBlobs()
	w.u32(uint32(len(all)))
	for i := range all {
		w.str(all[i].Name)
		w.blobRef(&all[i].BlobRef)
	}
}

// namedBlobs returns all blobs that are set, in ascending order of name.
func (a *Announcement) namedBlobs() []NamedBlob {
	all := slices.Clone(a.UnknownBlobs)
	for _, b := range []NamedBlob{{blobBase, a.BaseModel}, {blobCandidate, a.CandidateModelFile}, {blobOutcome,
		a.LastRoundOutcome},
		{blobReleased, a.ReleasedModelFile}, {blobTask, a.Task}} {
		if b.Length == 0 && b.Hash.IsZero() && b.ManifestHash.IsZero() && b.Inline == nil {
			continue
		}
		at := 0
		for at < len(all) && all[at].Name < b.Name {
			at++
		}
		all = slices.Insert(all, at, b)
	}
	return all
}

func (r *reader) announcedBlobs(a *Announcement) {
	last := ""
	for range r.listLength("blobs", MaxAnnouncedBlobs, 75) {
		last = r.ascendingName("blob", last)
		switch blob := r.blobRef(last); last {
		case blobBase:
			a.BaseModel = blob
		case blobCandidate:
			a.CandidateModelFile = blob
		case blobOutcome:
			a.LastRoundOutcome = blob
		case blobReleased:
			a.ReleasedModelFile = blob
		case blobTask:
			a.Task = blob
		default:
			a.UnknownBlobs = append(a.UnknownBlobs, NamedBlob{last, blob})
		}
	}
}

// DecodeAnnouncement decodes the body of a TypeAnnouncement envelope.
func DecodeAnnouncement(body []byte) (Announcement, error) {
	r := reader{unread: body}
	a := Announcement{
		Attempt:          RoundAttempt(r.u32()),
		Phase:            AnnouncementPhase(r.enum("phase", uint8(PhaseFinished))),
		Kind:             RoundKind(r.enum("kind", uint8(KindTraining))),
		BaseModelVersion: ModelVersion(r.u64()),
		InstanceNonce:    r.u64(),
		LastEndedRound:   RoundID(r.u64()),
	}
	r.announcedBlobs(&a)
	a.UpdateSchema, a.Seed, a.PriorLocalSteps, a.HelloSpreadMillis, a.RoundTimeoutMillis = r.digest(), r.u64(),
		r.u64(), r.u32(),
		r.u32()
	a.Extra = r.bodySections(a.sectionCodecs())
	if r.err == nil && a.Attempt == 0 {
		r.failf("attempt is 0: must be at least 1")
	}
	if r.err == nil && a.Phase == PhaseOpen && (!a.Task.IsSet() ||
		a.BaseModel.IsSet() != (a.Kind == KindTraining)) {
		r.failf("the announcement of an open %s round has no task or an unexpected base model reference", a.Kind)
	}
	return a, r.finish("announcement")
}

// AnnouncementPosition orders announcements in time. A coordinator's position never decreases, even across restarts. An
// agent stores the last position that it followed.
type AnnouncementPosition struct {
	Root    RootVersion
	Epoch   Epoch
	Run     RunID
	Round   RoundID
	Attempt RoundAttempt
	Phase   AnnouncementPhase
}

// AnnouncementPositionOf returns the position of announcement a, which was received with header h.
func AnnouncementPositionOf(h Header, a *Announcement) AnnouncementPosition {
	return AnnouncementPosition{h.Root, h.Epoch, h.Run, h.Round, a.Attempt, a.Phase}
}

// Compare returns −1, 0 or +1 if o is before, equal to or after p.
func (o AnnouncementPosition) Compare(p AnnouncementPosition) int {
	return cmp.Or(cmp.Compare(o.Root, p.Root), cmp.Compare(o.Epoch, p.Epoch), cmp.Compare(o.Run, p.Run),
		cmp.Compare(o.Round, p.Round), cmp.Compare(o.Attempt, p.Attempt), cmp.Compare(o.Phase, p.Phase))
}

// SupersedesSenderOf reports whether the message with the header h is from a coordinator that has been replaced by the
// coordinator that published position o.
func (o AnnouncementPosition) SupersedesSenderOf(h Header) bool {
	return cmp.Or(cmp.Compare(o.Root, h.Root), cmp.Compare(o.Epoch, h.Epoch)) > 0
}

// String returns the position as text for logs.
func (o AnnouncementPosition) String() string {
	root := ""
	if o.Root > FirstRootVersion {
		root = fmt.Sprintf("root %d ", o.Root)
	}
	return fmt.Sprintf("%sepoch %d run %d round %d attempt %d %s", root, o.Epoch, o.Run, o.Round, o.Attempt, o.Phase)
}

// enumName returns the name of value x of an enumeration whose first value is 1.
func enumName(x uint8, names ...string) string {
	if x == 0 || int(x) > len(names) {
		return fmt.Sprintf("unknown(%d)", x)
	}
	return names[x-1]
}
