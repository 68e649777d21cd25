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

// updates are the updates of a set in the spool, as a rule reads them. They are held against their sums on the way.
type updates struct {
	packed   // in units
	set      []round.Contribution
	d        int // elements of an update
	sums     []*store.PayloadSum
	summed   int // elements of each update that are in its sum
	verified bool
	bytes    []byte
	v        []float32
}

// strips calls do for each strip. After the last one all updates have been verified.
func (u *updates) strips(do func(from, to int) error) error {
	for from := 0; from < u.d; from += strip {
		if err := do(from, min(from+strip, u.d)); err != nil {
			return err
		}
	}
	return u.verify()
}

// Len implements [rule.Source].
func (u *updates) Len() int { return u.d }

// Each implements [rule.Source].
func (u *updates) Each(from, to int, take func(k int, v []float32)) error {
	if u.sums == nil {
		u.sums = make([]*store.PayloadSum, len(u.set))
		for k := range u.sums {
			var err error
			if u.sums[k], err = u.Sum(string(u.set[k].Agent)); err != nil {
				u.sums = nil
				return u.failed(k, err)
			}
		}
	}
	for k := range u.set {
		v, err := u.read(k, from, to)
		if err != nil {
			return err
		}
		if u.summed == from {
			_, _ = u.sums[k].Write(u.bytes) // never fails
		}
		take(k, v)
	}
	if u.summed == from {
		u.summed = to
	}
	return nil
}

// Columns implements [rule.Source]. All updates are verified before the first ones.
func (u *updates) Columns(from int, rows [][]float32) error {
	if err := u.verify(); err != nil {
		return err
	}
	for k := range u.set {
		v, err := u.read(k, from, from+len(rows[k]))
		if err != nil {
			return err
		}
		copy(rows[k], v)
	}
	return nil
}

// verify holds all updates against their sums, once. It reads what has not been read yet.
func (u *updates) verify() error {
	if u.verified {
		return nil
	}
	for u.summed < u.d {
		if err := u.Each(u.summed, min(u.summed+strip, u.d), func(int, []float32) {}); err != nil {
			return err
		}
	}
	for k, sum := range u.sums {
		if err := sum.Check(); err != nil {
			return u.failed(k, err)
		}
	}
	u.verified = true
	return nil
}

// read returns some elements of update k, and leaves the bytes of their units. They are valid until the next call.
func (u *updates) read(k, from, to int) ([]float32, error) {
	start, end, first := codec.Span(u.codec, u.d, from, to)
	elements, _ := u.codec.Unit()
	n := min((to+elements-1)/elements*elements, u.d) - first
	u.bytes, u.v = slices.Grow(u.bytes[:0], end-start)[:end-start], slices.Grow(u.v[:0], n)[:n]
	err := u.PayloadAt(string(u.set[k].Agent), u.bytes, int64(start))
	if err == nil {
		if u.codec.Decode(u.v, u.bytes) != nil { // it was decoded when it came
			err = u.sums[k].Changed()
		}
	}
	if err != nil {
		return nil, u.failed(k, err)
	}
	return u.v[from-first : to-first], nil
}

func (u *updates) failed(k int, err error) error { return spoolFailed(u.set[k].Agent, err) }

// spoolFailed says why an accepted update cannot be read.
func spoolFailed(agent wire.AgentID, err error) error {
	return fmt.Errorf("%w: update of %s: %w", round.ErrSpool, agent, err)
}
