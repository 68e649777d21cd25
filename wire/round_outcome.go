package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// UpdateFate tells what became of an update of a round that is over. It is a metric's label.
type UpdateFate uint8

// The fates. Those from FateNotFinite to FateLeftOutByRule are of updates that were accepted and left out of the fold.
const (
	FateAggregated     UpdateFate = iota + 1
	FateNotFinite                 // the model would not have been finite
	FateRiskExploded              // the model's risk would have exploded
	FateDominantNorm              // the update outweighs all others together
	FateLeftOutByRule             // the rule leaves it out: it is longer than allowed, or the rule has chosen others
	FateMissedRoundEnd            // it was not there when the round was closed
	FateRoundAbandoned            // the round was given up
	FateRoundForgotten            // the coordinator remembers the round no more
	lastFate           = FateRoundForgotten
)

// String returns the fate's name.
func (f UpdateFate) String() string {
	return enumName(uint8(f), "folded", "not_finite", "risk", "norm", "refuse_above", "missed", "abandoned", "unknown")
}

// UpdateFates returns all fates, for closed label sets.
func UpdateFates() []UpdateFate { return allEnumValues(lastFate) }

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
	IsAbandoned bool               // then nothing is listed
	UpdateFates []TaggedUpdateFate // the updates that were there when the round was closed, ascending by tag
}

// TaggedUpdateFate is an update and its fate.
type TaggedUpdateFate struct {
	Tag  UpdateTag
	Fate UpdateFate // FateAggregated to FateLeftOutByRule
}

func compareFatesByTag(a, b TaggedUpdateFate) int { return bytes.Compare(a.Tag[:], b.Tag[:]) }

// Body returns the outcome's encoding. It sorts the list.
func (o *RoundOutcome) Body() []byte {
	slices.SortFunc(o.UpdateFates, compareFatesByTag)
	var w writer
	w.u64(uint64(o.Round))
	w.bool(o.IsAbandoned)
	w.u32(uint32(len(o.UpdateFates)))
	for _, s := range o.UpdateFates {
		w.encoded = append(w.encoded, s.Tag[:]...)
		w.u8(uint8(s.Fate))
	}
	return w.encoded
}

// DecodeRoundOutcome reads an outcome.
func DecodeRoundOutcome(body []byte) (RoundOutcome, error) {
	r := reader{unread: body}
	o := RoundOutcome{Round: RoundID(r.u64()), IsAbandoned: r.bool("abandoned")}
	n := r.listLength("updates", MaxOutcomeUpdates, 9)
	o.UpdateFates = slices.Grow(o.UpdateFates, n)
	for range n {
		var s TaggedUpdateFate
		copy(s.Tag[:], r.takeBytes(len(s.Tag)))
		s.Fate = UpdateFate(r.enum("fate", uint8(FateLeftOutByRule)))
		if k := len(o.UpdateFates); r.err == nil && k > 0 && compareFatesByTag(o.UpdateFates[k-1], s) >= 0 {
			r.failf("tag %x after %x: they must ascend", s.Tag, o.UpdateFates[k-1].Tag)
		}
		o.UpdateFates = append(o.UpdateFates, s)
	}
	if r.err == nil && o.IsAbandoned && len(o.UpdateFates) > 0 {
		r.failf("round %d is abandoned, and lists %d updates", o.Round, len(o.UpdateFates))
	}
	return o, r.finish("outcome")
}

// FateOf returns what became of an update of the round.
func (o *RoundOutcome) FateOf(tag UpdateTag) UpdateFate {
	if o.IsAbandoned {
		return FateRoundAbandoned
	}
	if i, found := slices.BinarySearchFunc(o.UpdateFates, TaggedUpdateFate{Tag: tag}, compareFatesByTag); found {
		return o.UpdateFates[i].Fate
	}
	return FateMissedRoundEnd
}

// UpdateFateAnswer answers a hello that asks for the outcome of an update. Run and round are the header's.
type UpdateFateAnswer struct {
	Update Digest
	Fate   UpdateFate
}

// Body returns the message's encoding.
func (m *UpdateFateAnswer) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u8(uint8(m.Fate))
	return w.encoded
}

// DecodeUpdateFateAnswer reads the body of a TypeUpdateFateAnswer envelope.
func DecodeUpdateFateAnswer(body []byte) (UpdateFateAnswer, error) {
	r := reader{unread: body}
	m := UpdateFateAnswer{Update: r.digest(), Fate: UpdateFate(r.enum("fate", uint8(lastFate)))}
	return m, r.finish("settled")
}
