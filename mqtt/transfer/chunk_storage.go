package transfer

import (
	"github.com/fedmesh/fedmesh/wire"
)

// ChunkStorage stores the received chunks of one blob. Only one state machine uses it, until the machine passes it on
// (PullDone, UpdateComplete) or closes it. The host verifies existing chunks when it opens the storage. A storage that
// persists across restarts lets a transfer resume.
type ChunkStorage interface {
	// HasChunk reports whether chunk k is stored. It is called once per chunk, after opening.
	HasChunk(k int) bool
	// PutChunk stores the verified payload of chunk k and takes ownership of the slice. After an error the chunk is
	// considered missing and is requested again.
	PutChunk(k int, payload []byte) error
	// Close closes the storage; stored files are kept.
	Close() error
}

// MemoryChunkStorage is a ChunkStorage in memory. It keeps the chunks in separate slices, because joining them would
// temporarily need twice the memory.
type MemoryChunkStorage struct{ chunkPayloads [][]byte }

var _ ChunkStorage = (*MemoryChunkStorage)(nil)

// NewMemoryChunkStorage returns the storage of a blob of n bytes.
func NewMemoryChunkStorage(n int) *MemoryChunkStorage {
	return &MemoryChunkStorage{make([][]byte, wire.ChunkCount(n))}
}

// inlineBlobStorage returns the storage of an inline blob, which has at most one chunk.
func inlineBlobStorage(p []byte) *MemoryChunkStorage { return &MemoryChunkStorage{[][]byte{p}} }

// ChunkPayloads returns the chunks of a complete blob in order, without copying. Each chunk except the last has
// wire.MaxChunkBytes bytes.
func (m *MemoryChunkStorage) ChunkPayloads() [][]byte { return m.chunkPayloads }

// HasChunk implements ChunkStorage. A new storage is empty.
func (m *MemoryChunkStorage) HasChunk(int) bool { return false }

// PutChunk implements ChunkStorage. It never fails.
func (m *MemoryChunkStorage) PutChunk(k int, payload []byte) error {
	m.chunkPayloads[k] = payload
	return nil
}

// Close implements ChunkStorage.
func (m *MemoryChunkStorage) Close() error { return nil }

// Storage events and effects, exchanged between state machines and hosts. For a BlobPuller, Agent is empty.
type (
	// OpenStorage makes the host open a storage for the blob of the manifest, including chunks stored by an earlier
	// process. The host answers with StorageOpened, immediately or later. The length has already been checked against
	// the configured maximum.
	OpenStorage struct {
		Agent    wire.AgentID
		Manifest wire.Manifest
	}
	// StorageOpened is the answer to OpenStorage. BlobDigest is the hash in the manifest.
	StorageOpened struct {
		Agent      wire.AgentID
		BlobDigest wire.Digest
		Storage    ChunkStorage // the opened storage; nil if Err is set
		Err        error
	}
	// StorageFailed reports a storage failure. It is not repeated until the storage has worked again; the transfer
	// continues, and chunks that could not be stored are requested again.
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

// closeUnusedStorage closes a storage that is not needed. Its data is not used, so an error is ignored.
func closeUnusedStorage(s ChunkStorage) {
	if s != nil {
		_ = s.Close()
	}
}
