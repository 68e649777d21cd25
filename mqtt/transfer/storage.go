package transfer

import (
	"fmt"
	"io"

	"github.com/fedmesh/fedmesh/wire"
)

// Storage keeps the chunks of one blob on its way here. The machine that was
// given one is its only user until it hands it over (Done, Complete) or has
// closed it. Whatever it holds at first was verified by who opened it: a
// storage that outlives a process is how a transfer outlives it.
type Storage interface {
	// Has reports whether chunk k is there. It is asked once, at the beginning.
	Has(k int) bool
	// Put keeps the payload of chunk k, which the machine has verified; the slice
	// is not kept. After an error the chunk counts as missing and comes again.
	Put(k int, payload []byte) error
	// Close ends the use; what a storage on disk holds stays there.
	Close() error
}

// Memory is a Storage of exactly the blob's length in memory.
type Memory struct{ data []byte }

var (
	_ Storage     = (*Memory)(nil)
	_ io.ReaderAt = (*Memory)(nil)
)

// NewMemory returns the storage of a blob of n bytes.
func NewMemory(n int) *Memory { return &Memory{make([]byte, n)} }

// Bytes returns the blob, once it is complete. It is not copied.
func (m *Memory) Bytes() []byte { return m.data }

// Has implements Storage: nothing is there at first.
func (m *Memory) Has(int) bool { return false }

// Put implements Storage. It never fails.
func (m *Memory) Put(k int, payload []byte) error {
	copy(m.data[k*wire.MaxChunk:], payload)
	return nil
}

// ReadAt implements io.ReaderAt.
func (m *Memory) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at > int64(len(m.data)) {
		return 0, fmt.Errorf("transfer: read at %d of %d bytes", at, len(m.data))
	}
	n := copy(p, m.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close implements Storage.
func (m *Memory) Close() error { return nil }

// What machines and hosts say to each other about storage. Agent is empty on
// the way of a Puller.
type (
	// Open asks the host for a storage of the manifest's length, with what an
	// earlier process left of this blob. The host answers with Opened, at once or
	// later. The length has been held against the policy.
	Open struct {
		Agent    wire.AgentID
		Manifest wire.Manifest
	}
	// Opened answers Open. Blob is the manifest's hash.
	Opened struct {
		Agent wire.AgentID
		Blob  wire.Digest
		Data  Storage // nil with an error
		Err   error
	}
	// Unstored tells that the storage fails, once until it works again. The
	// transfer goes on: what could not be stored is asked for again.
	Unstored struct {
		Agent wire.AgentID
		Err   error
	}
)

func (Open) pullEffect()        {}
func (Open) receiveEffect()     {}
func (Opened) pullEvent()       {}
func (Opened) receiveEvent()    {}
func (Unstored) pullEffect()    {}
func (Unstored) receiveEffect() {}

// disown closes a storage that came too late to be used. Nobody waits for what
// it holds, so an error has no one to tell.
func disown(s Storage) {
	if s != nil {
		_ = s.Close()
	}
}
