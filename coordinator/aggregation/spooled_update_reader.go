package aggregation

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// strip is the number of elements that are aggregated at a time, a multiple of the unit of each codec. It bounds the
// memory that an aggregation needs in addition to the models.
const strip = 1 << 15

// spooledUpdateReader is the rule.UpdateReader of the updates of a set, which are in a spool. It verifies their
// checksums as it reads them.
type spooledUpdateReader struct {
	packedSpool
	contributions       []round.Contribution
	dimension           int // elements of an update
	payloadVerifiers    []*store.PayloadVerifier
	checksummedElements int // elements of each update that its verifier has read
	verified            bool
	unitBytes           []byte
	vectorBuffer        []float32
}

// forEachStrip calls do for each strip. After the last one all updates have been verified.
func (u *spooledUpdateReader) forEachStrip(do func(from, to int) error) error {
	for from := 0; from < u.dimension; from += strip {
		if err := do(from, min(from+strip, u.dimension)); err != nil {
			return err
		}
	}
	return u.verifyChecksums()
}

// Len implements [rule.UpdateReader].
func (u *spooledUpdateReader) Len() int { return u.dimension }

// ForEachUpdate implements [rule.UpdateReader].
func (u *spooledUpdateReader) ForEachUpdate(from, to int, take func(k int, v []float32)) error {
	if u.payloadVerifiers == nil {
		u.payloadVerifiers = make([]*store.PayloadVerifier, len(u.contributions))
		for k := range u.payloadVerifiers {
			var err error
			if u.payloadVerifiers[k], err = u.NewPayloadVerifier(string(u.contributions[k].Agent)); err != nil {
				u.payloadVerifiers = nil
				return u.newUpdateReadError(k, err)
			}
		}
	}
	for k := range u.contributions {
		v, err := u.readElements(k, from, to)
		if err != nil {
			return err
		}
		if u.checksummedElements == from {
			_, _ = u.payloadVerifiers[k].Write(u.unitBytes) // never fails
		}
		take(k, v)
	}
	if u.checksummedElements == from {
		u.checksummedElements = to
	}
	return nil
}

// ReadColumns implements [rule.UpdateReader]. The first call reads and decodes all updates once more, to verify their
// checksums.
func (u *spooledUpdateReader) ReadColumns(from int, rows [][]float32) error {
	if err := u.verifyChecksums(); err != nil {
		return err
	}
	for k := range u.contributions {
		v, err := u.readElements(k, from, from+len(rows[k]))
		if err != nil {
			return err
		}
		copy(rows[k], v)
	}
	return nil
}

// verifyChecksums compares all updates with their checksums, once. It reads the elements that were not read yet.
func (u *spooledUpdateReader) verifyChecksums() error {
	if u.verified {
		return nil
	}
	for u.checksummedElements < u.dimension {
		if err := u.ForEachUpdate(u.checksummedElements, min(u.checksummedElements+strip, u.dimension), func(int,
			[]float32) {
		}); err != nil {
			return err
		}
	}
	for k, sum := range u.payloadVerifiers {
		if err := sum.CheckPayload(); err != nil {
			return u.newUpdateReadError(k, err)
		}
	}
	u.verified = true
	return nil
}

// readElements returns some elements of update k, and sets u.bytes to the bytes of their units. They are valid until
// the next call.
func (u *spooledUpdateReader) readElements(k, from, to int) ([]float32, error) {
	start, end, first := codec.EncodedByteRange(u.codec, u.dimension, from, to)
	elements, _ := u.codec.IndependentUnitSize()
	n := min((to+elements-1)/elements*elements, u.dimension) - first
	u.unitBytes, u.vectorBuffer = slices.Grow(u.unitBytes[:0], end-start)[:end-start], slices.Grow(u.vectorBuffer[:0],
		n)[:n]
	err := u.ReadPayloadAt(string(u.contributions[k].Agent), u.unitBytes, int64(start))
	if err == nil {
		if u.codec.Decode(u.vectorBuffer, u.unitBytes) != nil { // it was decoded when it arrived
			err = u.payloadVerifiers[k].ChangedError()
		}
	}
	if err != nil {
		return nil, u.newUpdateReadError(k, err)
	}
	return u.vectorBuffer[from-first : to-first], nil
}

func (u *spooledUpdateReader) newUpdateReadError(k int, err error) error {
	return wrapSpoolReadError(u.contributions[k].Agent, err)
}

// wrapSpoolReadError wraps the error of reading an accepted update.
func wrapSpoolReadError(agent wire.AgentID, err error) error {
	return fmt.Errorf("%w: update of %s: %w", round.ErrSpoolDamaged, agent, err)
}

// SpooledUpdates returns the updates in the spool of a round that an earlier process began. Training updates have their
// norm. An update whose manifest cannot be decoded is omitted; its agent is asked for it again.
func (w *Aggregator) SpooledUpdates(s *store.UpdateSpool, kind wire.RoundKind) (map[wire.AgentID]round.SpooledUpdate,
	error) {
	all := map[wire.AgentID]round.SpooledUpdate{}
	var set []round.Contribution
	for _, e := range s.Entries() {
		m, err := decodeManifest(e.SignedManifest)
		if err != nil {
			w.cfg.Logger.Warn("manifest of an update in the spool is damaged; its agent is asked again",
				"agent", e.Agent, "err", err)
			continue
		}
		set = append(set, round.Contribution{Agent: wire.AgentID(e.Agent), UpdateDigest: e.PayloadDigest,
			Codec: m.PayloadManifest.Codec, ReportedRisk: m.RiskBefore})
	}
	var err error
	squares := make([]float64, len(set))
	switch packed := w.wrapPackedSpool(s); {
	case kind != wire.KindTraining:
	case codec.DecodesOnlyWholeVectors(packed.codec):
		err = w.forEachUnpackedUpdate(s, set, func(k int, v []float32) error {
			squares[k] = learner.AddSquares(0, v)
			return nil
		})
	default:
		u := w.newSpooledUpdateReader(packed, set)
		err = u.forEachStrip(func(from, to int) error {
			return u.ForEachUpdate(from, to, func(k int, v []float32) {
				squares[k] = learner.AddSquares(squares[k], v)
			})
		})
	}
	for k, x := range set {
		all[x.Agent] = round.SpooledUpdate{UpdateDigest: x.UpdateDigest, Norm: math.Sqrt(squares[k]), Codec: x.Codec,
			RiskBefore: x.ReportedRisk}
	}
	return all, err
}

// decodeManifest decodes the signed manifest of an update.
func decodeManifest(signed []byte) (wire.Update, error) {
	envelope, err := wire.ParseEnvelope(signed)
	if err != nil {
		return wire.Update{}, err
	}
	return wire.DecodeUpdate(envelope.Body)
}
