package transfer

import (
	"github.com/fedmesh/fedmesh/wire"
)

// ChunkStorage keeps the chunks of one blob on its way here. The machine that was
// given one is its only user until it hands it over (PullDone, UpdateComplete) or has
// closed it. Its first content was verified when it was opened: a
// storage that outlives a process is how a transfer outlives it.
type ChunkStorage interface {
	// HasChunk reports whether chunk k is there. It is asked once, at the beginning.
	HasChunk(k int) bool
	// PutChunk keeps the payload of chunk k, which the machine has verified; nobody
	// writes to the slice any more. After an error the chunk counts as missing and
	// comes again.
	PutChunk(k int, payload []byte) error
	// Close ends the use; what a storage on disk holds stays there.
	Close() error
}

// MemoryChunkStorage is a ChunkStorage in memory. It holds the chunks as they came: copied
// together, they would cost twice the blob for a moment.
type MemoryChunkStorage struct{ chunkPayloads [][]byte }

var _ ChunkStorage = (*MemoryChunkStorage)(nil)

// NewMemoryChunkStorage returns the storage of a blob of n bytes.
func NewMemoryChunkStorage(n int) *MemoryChunkStorage {
	return &MemoryChunkStorage{make([][]byte, wire.ChunkCount(n))}
}

// inlineBlobStorage is the storage of an inline blob, which has at most one chunk.
func inlineBlobStorage(p []byte) *MemoryChunkStorage { return &MemoryChunkStorage{[][]byte{p}} }

// ChunkPayloads returns the blob, once it is complete, as views that make it up in
// this order. Each but the last has wire.MaxChunkBytes bytes.
func (m *MemoryChunkStorage) ChunkPayloads() [][]byte { return m.chunkPayloads }

// HasChunk implements ChunkStorage: nothing is there at first.
func (m *MemoryChunkStorage) HasChunk(int) bool { return false }

// PutChunk implements ChunkStorage. It never fails.
func (m *MemoryChunkStorage) PutChunk(k int, payload []byte) error {
	m.chunkPayloads[k] = payload
	return nil
}

// Close implements ChunkStorage.
func (m *MemoryChunkStorage) Close() error { return nil }

// Messages between machines and hosts about storage. Agent is empty on
// the way of a BlobPuller.
type (
	// OpenStorage asks the host for a storage of the manifest's length, with what an
	// earlier process left of this blob. The host answers with StorageOpened, at once or
	// later. The length has been held against the policy.
	OpenStorage struct {
		Agent    wire.AgentID
		Manifest wire.Manifest
	}
	// StorageOpened answers OpenStorage. Blob is the manifest's hash.
	StorageOpened struct {
		Agent      wire.AgentID
		BlobDigest wire.Digest
		Storage    ChunkStorage // nil with an error
		Err        error
	}
	// StorageFailed tells that the storage fails, once until it works again. The
	// transfer goes on: what could not be stored is asked for again.
	StorageFailed struct {
		Agent wire.AgentID
		Err   error
	}
)

func (OpenStorage) isPullEffect()      {}
func (OpenStorage) isReceiveEffect()   {}
func (StorageOpened) isPullEvent()     {}
func (StorageOpened) isReceiveEvent()  {}
func (StorageFailed) isPullEffect()    {}
func (StorageFailed) isReceiveEffect() {}

// closeUnusedStorage closes a storage that came too late to be used. Nobody waits for what
// it holds, so an error has no one to tell.
func closeUnusedStorage(s ChunkStorage) {
	if s != nil {
		_ = s.Close()
	}
}
