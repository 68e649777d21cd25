package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// UpdateFate is the final result of an update after the end of its round. Metrics use its name as a label value.
type UpdateFate uint8

// Values of UpdateFate. The values from FateNotFinite to FateLeftOutByRule mean that the update was accepted but left
// out of the aggregate.
const (
	FateAggregated     UpdateFate = iota + 1
	FateNotFinite                 // with the update, the model would have contained NaN or infinity
	FateRiskExploded              // with the update, the risk of the model would have exploded
	FateDominantNorm              // the norm of the update exceeds the norms of all other updates together
	FateLeftOutByRule             // the aggregation rule excluded the update, for example because its norm is too large
	FateMissedRoundEnd            // the update did not arrive before the round was closed
	FateRoundAbandoned            // the round was abandoned
	FateRoundForgotten            // the coordinator no longer has the outcome of the round
	lastFate           = FateRoundForgotten
)

// String returns the name of the fate.
func (f UpdateFate) String() string {
	return enumName(uint8(f), "folded", "not_finite", "risk", "norm", "refuse_above", "missed", "abandoned", "unknown")
}

// UpdateFates returns all values of UpdateFate.
func UpdateFates() []UpdateFate { return allEnumValues(lastFate) }

// UpdateTag identifies an update in the outcome of its round. The tag reveals nothing to a reader who does not know the
// update.
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

// RoundOutcome lists what happened to each update of a round. It is published as a blob to which later announcements
// refer.
type RoundOutcome struct {
	Round       RoundID
	IsAbandoned bool // whether the round was abandoned; UpdateFates is then empty
	UpdateFates []TaggedUpdateFate
}

// TaggedUpdateFate is the fate of one update.
type TaggedUpdateFate struct {
	Tag  UpdateTag
	Fate UpdateFate // fate of the update, at most FateLeftOutByRule
}

func compareFatesByTag(a, b TaggedUpdateFate) int { return bytes.Compare(a.Tag[:], b.Tag[:]) }

// Body returns the encoded outcome. It sorts UpdateFates by tag.
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

// DecodeRoundOutcome decodes an outcome.
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
			r.failf("tag %x is listed after %x: tags must be in ascending order", s.Tag, o.UpdateFates[k-1].Tag)
		}
		o.UpdateFates = append(o.UpdateFates, s)
	}
	if r.err == nil && o.IsAbandoned && len(o.UpdateFates) > 0 {
		r.failf("round %d is abandoned but lists %d updates", o.Round, len(o.UpdateFates))
	}
	return o, r.finish("outcome")
}

// FateOf returns the final result of the update with the given tag.
func (o *RoundOutcome) FateOf(tag UpdateTag) UpdateFate {
	if o.IsAbandoned {
		return FateRoundAbandoned
	}
	if i, found := slices.BinarySearchFunc(o.UpdateFates, TaggedUpdateFate{Tag: tag}, compareFatesByTag); found {
		return o.UpdateFates[i].Fate
	}
	return FateMissedRoundEnd
}

// UpdateFateAnswer is the answer to a hello message with a FateRequest. The envelope header contains the run and round
// of the update.
type UpdateFateAnswer struct {
	Update Digest
	Fate   UpdateFate
}

// Body returns the encoded message.
func (m *UpdateFateAnswer) Body() []byte {
	var w writer
	w.digest(m.Update)
	w.u8(uint8(m.Fate))
	return w.encoded
}

// DecodeUpdateFateAnswer decodes the body of a TypeUpdateFateAnswer envelope.
func DecodeUpdateFateAnswer(body []byte) (UpdateFateAnswer, error) {
	r := reader{unread: body}
	m := UpdateFateAnswer{Update: r.digest(), Fate: UpdateFate(r.enum("fate", uint8(lastFate)))}
	return m, r.finish("update fate")
}
