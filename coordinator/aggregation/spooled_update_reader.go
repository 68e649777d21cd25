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

// strip is the number of elements that are aggregated at a time, a multiple of each codec's unit. It limits the memory
// of an aggregation beyond the models.
const strip = 1 << 15

// spooledUpdateReader implements [rule.UpdateReader] for updates stored in a spool (the folder with the updates of one
// round). It verifies the checksums of the updates while reading.
type spooledUpdateReader struct {
	packedSpool
	contributions       []round.Contribution
	dimension           int // number of elements of an update
	payloadVerifiers    []*store.PayloadVerifier
	checksummedElements int // number of elements per update included in the checksums so far
	verified            bool
	unitBytes           []byte
	vectorBuffer        []float32
}

// forEachStrip calls do for each strip [from, to), then verifies the checksums of all updates.
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
			_, _ = u.payloadVerifiers[k].Write(u.unitBytes) // a hash write never fails
		}
		take(k, v)
	}
	if u.checksummedElements == from {
		u.checksummedElements = to
	}
	return nil
}

// ReadColumns implements [rule.UpdateReader]. The first call also reads and decodes all updates to verify their
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

// verifyChecksums verifies the checksums of all updates once. It first reads the elements that have not been read yet.
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

// readElements returns elements [from, to) of update k, and sets u.unitBytes to the encoded form of these elements.
// Both are valid until the next call.
func (u *spooledUpdateReader) readElements(k, from, to int) ([]float32, error) {
	start, end, first := codec.EncodedByteRange(u.codec, u.dimension, from, to)
	elements, _ := u.codec.IndependentUnitSize()
	n := min((to+elements-1)/elements*elements, u.dimension) - first
	u.unitBytes, u.vectorBuffer = slices.Grow(u.unitBytes[:0], end-start)[:end-start], slices.Grow(u.vectorBuffer[:0],
		n)[:n]
	err := u.ReadPayloadAt(string(u.contributions[k].Agent), u.unitBytes, int64(start))
	if err == nil {
		// A decoding error means that the file changed, since the update was valid on arrival.
		if u.codec.Decode(u.vectorBuffer, u.unitBytes) != nil {
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

// wrapSpoolReadError wraps an error that occurred while reading an accepted update.
func wrapSpoolReadError(agent wire.AgentID, err error) error {
	return fmt.Errorf("%w: update from %s: %w", round.ErrSpoolDamaged, agent, err)
}

// SpooledUpdates returns the updates in the spool of a round that an earlier process began. Training updates include
// their norm. An update with a damaged manifest is omitted, and its agent must upload it again.
func (w *Aggregator) SpooledUpdates(s *store.UpdateSpool, kind wire.RoundKind) (map[wire.AgentID]round.SpooledUpdate,
	error) {
	all := map[wire.AgentID]round.SpooledUpdate{}
	var set []round.Contribution
	for _, e := range s.Entries() {
		m, err := decodeManifest(e.SignedManifest)
		if err != nil {
			w.cfg.Logger.Warn("manifest of a stored update is damaged; requesting the update from the agent again",
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

func decodeManifest(signed []byte) (wire.Update, error) {
	envelope, err := wire.ParseEnvelope(signed)
	if err != nil {
		return wire.Update{}, err
	}
	return wire.DecodeUpdate(envelope.Body)
}
