package transfer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// disk is a simulated disk with the written chunks of one blob. It survives restarts of the processes that open it. It
// can be full, and a power cut damages some of the last writes.
type disk struct {
	m       wire.Manifest
	data    []byte
	full    bool
	recent  []int // numbers of the chunks in the order of writing
	written int   // number of written chunks, over all processes
	spoiled int   // number of written chunks that power cuts damaged
	handles int
}

func newDisk(m wire.Manifest) *disk { return &disk{m: m, data: make([]byte, m.BlobLength)} }

func (d *disk) write(k int, payload []byte) {
	copy(d.data[k*wire.MaxChunkBytes:], payload)
	d.recent = append(d.recent, k)
	d.written++
}

// powerCut removes or damages some of the last writes.
func (d *disk) powerCut(rng *rand.Rand) {
	for _, k := range d.recent[max(0, len(d.recent)-4):] {
		p := wire.ChunkPayload(d.data, k)
		if from := rng.IntN(2 * len(p)); from < len(p) {
			clear(p[from:])
			d.spoiled++
		}
	}
	d.recent = nil
}

// open opens the disk and verifies the existing chunks, as store.OpenPartial does.
func (d *disk) open() *handle {
	d.handles++
	h := &handle{disk: d, have: make([]bool, len(d.m.ChunkDigests))}
	for k := range h.have {
		h.have[k] = digestOf(wire.ChunkPayload(d.data, k)) == d.m.ChunkDigests[k]
	}
	return h
}

// handle is a ChunkStorage on a disk.
type handle struct {
	disk   *disk
	have   []bool
	closed bool
}

var errFull = errors.New("no space left on device")

func (h *handle) HasChunk(k int) bool { return h.have[k] }

func (h *handle) PutChunk(k int, payload []byte) error {
	switch {
	case h.closed:
		panic("put after close")
	case h.disk.full:
		return errFull
	}
	h.disk.write(k, payload)
	h.have[k] = true
	return nil
}

func (h *handle) Close() error {
	if h.closed {
		panic("closed twice")
	}
	h.closed = true
	h.disk.handles--
	return nil
}

// wantOnce checks that each chunk was written once, except for chunks that a power cut damaged.
func (d *disk) wantOnce(t testing.TB) {
	t.Helper()
	if d.written > len(d.m.ChunkDigests)+d.spoiled {
		t.Fatalf("%d chunks were written to a blob of %d, of which %d were spoiled", d.written, len(d.m.ChunkDigests),
			d.spoiled)
	}
}

func (h *handle) whole() []byte { return bytes.Clone(h.disk.data) }
