package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// UpdateFate tells what became of an update of a round that is over. It is a metric's label.
type UpdateFate uint8

// The fates. Those from FateNotFinite to FateAbove are of updates that were accepted and left out of the fold.
const (
	FateFolded    UpdateFate = iota + 1
	FateNotFinite            // the model would not have been finite
	FateRisk                 // the model's risk would have exploded
	FateNorm                 // the update outweighs all others together
	FateAbove                // the rule leaves it out: it is longer than allowed, or the rule has chosen others
	FateMissed               // it was not there when the round was closed
	FateAbandoned            // the round was given up
	FateUnknown              // the coordinator remembers the round no more
	lastFate      = FateUnknown
)

// String returns the fate's name.
func (f UpdateFate) String() string {
	return enumName(uint8(f), "folded", "not_finite", "risk", "norm", "refuse_above", "missed", "abandoned", "unknown")
}

// Fates returns all fates, for closed label sets.
func Fates() []UpdateFate { return allEnumValues(lastFate) }

// UpdateTag names an update in the outcome of its round. It tells nothing to who does not know the update.
type UpdateTag [8]byte

// UpdateTagOf returns the tag of an update: the first bytes of SHA-256("fedmesh outcome" ‖ run ‖ round ‖ agent ‖ 0 ‖
// digest).
func UpdateTagOf(run RunID, round RoundID, agent AgentID, update Digest) (t UpdateTag) {
	p := append([]byte(nil), "fedmesh outcome"...)
	p = binary.LittleEndian.AppendUint64(p, uint64(run))
	p = binary.LittleEndian.AppendUint64(p, uint64(round))
	p = append(append(p, agent...), 0)
	sum := sha256.Sum256(append(p, update[:]...))
	copy(t[:], sum[:])
	return t
}

// RoundOutcome lists what became of the updates of a round. It is a blob of the announcements after it.
type RoundOutcome struct {
	Round       RoundID
	Abandoned   bool         // then nothing is listed
	UpdateFates []TaggedFate // the updates that were there when the round was closed, ascending by tag
}

// TaggedFate is an update and its fate.
type TaggedFate struct {
	Tag  UpdateTag
	Fate UpdateFate // FateFolded to FateAbove
}

func byTag(a, b TaggedFate) int { return bytes.Compare(a.Tag[:], b.Tag[:]) }

// Body returns the outcome's encoding. It sorts the list.
func (o *RoundOutcome) Body() []byte {
	slices.SortFunc(o.UpdateFates, byTag)
	var w writer
	w.u64(uint64(o.Round))
	w.bool(o.Abandoned)
	w.u32(uint32(len(o.UpdateFates)))
	for _, s := range o.UpdateFates {
		w.b = append(w.b, s.Tag[:]...)
		w.u8(uint8(s.Fate))
	}
	return w.b
}

// DecodeRoundOutcome reads an outcome.
func DecodeRoundOutcome(body []byte) (RoundOutcome, error) {
	r := reader{b: body}
	o := RoundOutcome{Round: RoundID(r.u64()), Abandoned: r.bool("abandoned")}
	n := r.listLength("updates", MaxOutcome, 9)
	o.UpdateFates = slices.Grow(o.UpdateFates, n)
	for range n {
		var s TaggedFate
		copy(s.Tag[:], r.takeBytes(len(s.Tag)))
		s.Fate = UpdateFate(r.enum("fate", uint8(FateAbove)))
		if k := len(o.UpdateFates); r.err == nil && k > 0 && byTag(o.UpdateFates[k-1], s) >= 0 {
			r.failf("tag %x after %x: they must ascend", s.Tag, o.UpdateFates[k-1].Tag)
		}
		o.UpdateFates = append(o.UpdateFates, s)
	}
	if r.err == nil && o.Abandoned && len(o.UpdateFates) > 0 {
		r.failf("round %d is abandoned, and lists %d updates", o.Round, len(o.UpdateFates))
	}
	return o, r.finish("outcome")
}

// FateOf returns what became of an update of the round.
func (o *RoundOutcome) FateOf(tag UpdateTag) UpdateFate {
	if o.Abandoned {
		return FateAbandoned
	}
	if i, found := slices.BinarySearchFunc(o.UpdateFates, TaggedFate{Tag: tag}, byTag); found {
		return o.UpdateFates[i].Fate
	}
	return FateMissed
}

// UpdateSettled answers a hello that asks for the outcome of an update. Run and round are the header's.
type UpdateSettled struct {
	Update Digest
	Fate   UpdateFate
}

// Body returns the message's encoding.
func (m *UpdateSettled) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u8(uint8(m.Fate))
	return w.b
}

// DecodeUpdateSettled reads the body of a TypeSettled envelope.
func DecodeUpdateSettled(body []byte) (UpdateSettled, error) {
	r := reader{b: body}
	m := UpdateSettled{Update: r.digest(), Fate: UpdateFate(r.enum("fate", uint8(lastFate)))}
	return m, r.finish("settled")
}
