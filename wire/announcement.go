package wire

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// AnnouncementPhase tells what an announcement asks for.
type AnnouncementPhase uint8

// The phases, in the order in which one round goes through them.
const (
	// PhaseGathering asks every agent for a hello.
	PhaseGathering AnnouncementPhase = iota + 1
	// PhaseOpen says that a round is under way; the selected get invitations.
	PhaseOpen
	// PhaseIdle says that no round is under way; Base is the newest model.
	PhaseIdle
	// PhaseFinished says that the run is over; Base is its result.
	PhaseFinished
)

// String returns the phase's name.
func (p AnnouncementPhase) String() string {
	return enumName(uint8(p), "gathering", "open", "idle", "finished")
}

// RoundKind tells what the participants of a round compute.
type RoundKind uint8

// The kinds of round.
const (
	// KindStatistics: counts, means and squared deviations of the task's columns.
	KindStatistics RoundKind = iota + 1
	// KindTraining: local steps, or a gradient, at the base model.
	KindTraining
)

// RoundKinds returns all kinds, for closed label sets.
func RoundKinds() []RoundKind { return []RoundKind{KindStatistics, KindTraining} }

// String returns the kind's name.
func (k RoundKind) String() string { return enumName(uint8(k), "statistics", "training") }

// Announcement is what the coordinator retains on the round topic for all.
type Announcement struct {
	Attempt          RoundAttempt
	Phase            AnnouncementPhase
	Kind             RoundKind
	BaseModelVersion ModelVersion // of Base
	// InstanceNonce is drawn at each start of the coordinator. Of two that have announced the same place, the one with
	// the lower instance stops.
	InstanceNonce    uint64
	LastEndedRound   RoundID     // the newest round of the run that is closed or abandoned; 0 = none
	Task             BlobRef     // absent only when there is nothing to do
	BaseModel        BlobRef     // the model w_{i−1}; absent in a statistics round
	LastRoundOutcome BlobRef     // of the round Folded; absent before there is one
	UnknownBlobs     []NamedBlob // those that this build has no use for, ascending by name
	UpdateSchema     Digest      // of the vectors that the round sends in
	Seed             uint64      // of the agents' draws
	PriorLocalSteps  uint64      // t: local steps of the schedule before this round
	// HelloSpreadMillis spreads the hellos that PhaseGathering asks for, in milliseconds.
	HelloSpreadMillis uint32
	// RoundTimeoutMillis is how long the whole round may take, in milliseconds.
	RoundTimeoutMillis uint32
	// InitialCreditChunks is how many of its update's chunks, the first ones, an agent may send right after the
	// manifest.
	InitialCreditChunks uint32
	Selection           AgentSelection // who is drawn; empty = the drawn are invited
	// that an agent should have before the next round; 0 = rounds do not wait for any
	MinNewRows        uint32
	MinEvaluationRows uint32              // rows on which an agent evaluates Base at least; 0 = it is not asked to
	ResponsePolicy    AgentResponsePolicy // who answers; zero = all
	Rollout           Rollout             // of models to predict with; zero = none
	// IssuedAt is the coordinator's time, in seconds of Unix time; it never falls. 0 = not told.
	IssuedAt uint64
	// ReleasedModelFile and CandidateModelFile are the files of its models (docs/MODEL.md).
	ReleasedModelFile, CandidateModelFile BlobRef
	SealPublicKey                         X25519PublicKey // agents seal their messages to it; zero = none
	Extra                                 UnknownSections
}

// NamedBlob is a blob of an announcement.
type NamedBlob struct {
	Name string // 1 to MaxSectionName of a–z, 0–9 and _
	BlobRef
}

// The names of the blobs that this build uses.
const (
	blobBase      = "base"
	blobCandidate = "candidate"
	blobOutcome   = "outcome"
	blobReleased  = "released"
	blobTask      = "task"
)

// Body returns the announcement's encoding.
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

// sectionCodecs are not needed by who does not know them, but for what is sealed: it waits for its invitation, and for
// credit.
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

// sealedBlobs writes which blobs are sealed, under one key, and those of them that travel in the announcement.
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
		r.failf("the sealed blobs have no key")
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
			r.failf("%s is sealed, and is not there", last)
		case len(whole) > 0 && (len(whole) != int(b.Length)+SealOverhead || sha256.Sum256(whole) != b.ManifestHash):
			r.failf("%s is not what was sealed", last)
		}
		if b.GroupKeyID = group; len(whole) > 0 {
			b.SealedInline = whole
		}
	}
}

// blobByName returns a blob by its name; one that is not present if there is none.
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

// announcedBlobs writes the blobs that there are.
func (w *writer) announcedBlobs(a *Announcement) {
	all := a.namedBlobs()
	w.u32(uint32(len(all)))
	for i := range all {
		w.str(all[i].Name)
		w.blobRef(&all[i].BlobRef)
	}
}

// namedBlobs returns the blobs that there are, ascending by name.
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

// DecodeAnnouncement reads the body of a TypeAnnouncement envelope.
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
		r.failf("attempt is 0, they count from 1")
	}
	if r.err == nil && a.Phase == PhaseOpen && (!a.Task.IsSet() ||
		a.BaseModel.IsSet() != (a.Kind == KindTraining)) {
		r.failf("an open %s round lacks its task or has the wrong base model", a.Kind)
	}
	return a, r.finish("announcement")
}

// AnnouncementPosition is where an announcement stands in time. A coordinator only moves
// forward in it, over restarts too; an agent saves the last one it obeyed.
type AnnouncementPosition struct {
	Root    RootVersion
	Epoch   Epoch
	Run     RunID
	Round   RoundID
	Attempt RoundAttempt
	Phase   AnnouncementPhase
}

// AnnouncementPositionOf returns the place of an announcement in time.
func AnnouncementPositionOf(h Header, a *Announcement) AnnouncementPosition {
	return AnnouncementPosition{h.Root, h.Epoch, h.Run, h.Round, a.Attempt, a.Phase}
}

// Compare returns −1, 0 or +1 as o is before, at or after p.
func (o AnnouncementPosition) Compare(p AnnouncementPosition) int {
	return cmp.Or(cmp.Compare(o.Root, p.Root), cmp.Compare(o.Epoch, p.Epoch), cmp.Compare(o.Run, p.Run),
		cmp.Compare(o.Round, p.Round), cmp.Compare(o.Attempt, p.Attempt), cmp.Compare(o.Phase, p.Phase))
}

// SupersedesSenderOf reports whether messages of h are from a coordinator that the one at o has replaced.
func (o AnnouncementPosition) SupersedesSenderOf(h Header) bool {
	return cmp.Or(cmp.Compare(o.Root, h.Root), cmp.Compare(o.Epoch, h.Epoch)) > 0
}

// String returns the order for logs.
func (o AnnouncementPosition) String() string {
	root := ""
	if o.Root > FirstRootVersion {
		root = fmt.Sprintf("root %d ", o.Root)
	}
	return fmt.Sprintf("%sepoch %d run %d round %d attempt %d %s", root, o.Epoch, o.Run, o.Round, o.Attempt, o.Phase)
}

// enumName names the values 1, 2, … of an enumeration.
func enumName(x uint8, names ...string) string {
	if x == 0 || int(x) > len(names) {
		return fmt.Sprintf("unknown(%d)", x)
	}
	return names[x-1]
}
