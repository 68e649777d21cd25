package coordinator

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// strip is how many elements of a model are folded at a time, a whole number of units of each codec that has some:
// beside the models a fold needs as much memory for a large one as for a small one.
const strip = 1 << 15

// updateSource are the updates of a set in the spool, as a rule reads them. They are held against their sums on the
// way.
type updateSource struct {
	packedSpool         // in units
	contributions       []round.Contribution
	dimension           int // elements of an update
	payloadVerifiers    []*store.PayloadVerifier
	checksummedElements int // elements of each update that are in its sum
	verified            bool
	bytes               []byte
	vectorBuffer        []float32
}

// forEachStrip calls do for each strip. After the last one all updates have been verified.
func (u *updateSource) forEachStrip(do func(from, to int) error) error {
	for from := 0; from < u.dimension; from += strip {
		if err := do(from, min(from+strip, u.dimension)); err != nil {
			return err
		}
	}
	return u.verify()
}

// Len implements [rule.Source].
func (u *updateSource) Len() int { return u.dimension }

// Each implements [rule.Source].
func (u *updateSource) Each(from, to int, take func(k int, v []float32)) error {
	if u.payloadVerifiers == nil {
		u.payloadVerifiers = make([]*store.PayloadVerifier, len(u.contributions))
		for k := range u.payloadVerifiers {
			var err error
			if u.payloadVerifiers[k], err = u.NewVerifier(string(u.contributions[k].Agent)); err != nil {
				u.payloadVerifiers = nil
				return u.readError(k, err)
			}
		}
	}
	for k := range u.contributions {
		v, err := u.read(k, from, to)
		if err != nil {
			return err
		}
		if u.checksummedElements == from {
			_, _ = u.payloadVerifiers[k].Write(u.bytes) // never fails
		}
		take(k, v)
	}
	if u.checksummedElements == from {
		u.checksummedElements = to
	}
	return nil
}

// Columns implements [rule.Source]. All updates are verified before the first ones.
func (u *updateSource) Columns(from int, rows [][]float32) error {
	if err := u.verify(); err != nil {
		return err
	}
	for k := range u.contributions {
		v, err := u.read(k, from, from+len(rows[k]))
		if err != nil {
			return err
		}
		copy(rows[k], v)
	}
	return nil
}

// verify holds all updates against their sums, once. It reads what has not been read yet.
func (u *updateSource) verify() error {
	if u.verified {
		return nil
	}
	for u.checksummedElements < u.dimension {
		if err := u.Each(u.checksummedElements, min(u.checksummedElements+strip, u.dimension), func(int,
			[]float32) {
		}); err != nil {
			return err
		}
	}
	for k, sum := range u.payloadVerifiers {
		if err := sum.Check(); err != nil {
			return u.readError(k, err)
		}
	}
	u.verified = true
	return nil
}

// read returns some elements of update k, and leaves the bytes of their units. They are valid until the next call.
func (u *updateSource) read(k, from, to int) ([]float32, error) {
	start, end, first := codec.EncodedByteRange(u.codec, u.dimension, from, to)
	elements, _ := u.codec.Unit()
	n := min((to+elements-1)/elements*elements, u.dimension) - first
	u.bytes, u.vectorBuffer = slices.Grow(u.bytes[:0], end-start)[:end-start], slices.Grow(u.vectorBuffer[:0], n)[:n]
	err := u.PayloadAt(string(u.contributions[k].Agent), u.bytes, int64(start))
	if err == nil {
		if u.codec.Decode(u.vectorBuffer, u.bytes) != nil { // it was decoded when it came
			err = u.payloadVerifiers[k].ChangedError()
		}
	}
	if err != nil {
		return nil, u.readError(k, err)
	}
	return u.vectorBuffer[from-first : to-first], nil
}

func (u *updateSource) readError(k int, err error) error {
	return spoolReadError(u.contributions[k].Agent, err)
}

// spoolReadError says why an accepted update cannot be read.
func spoolReadError(agent wire.AgentID, err error) error {
	return fmt.Errorf("%w: update of %s: %w", round.ErrSpool, agent, err)
}
