package fetch

import (
	"errors"
	"io"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// maxInMemory is the maximum length of a blob (task or model) that is fetched into memory. A longer blob is fetched
// into a file, so that the transfer can continue after a restart. For small blobs, the wear of flash memory would
// outweigh this advantage.
const maxInMemory = 1 << 20

// openBlobStorage opens the storage for a blob, with one file per purpose. It compares the chunk hashes to find the
// chunks that the file already contains.
func (f *Fetcher) openBlobStorage(n *blobFetch, m wire.Manifest) {
	answer := transfer.StorageOpened{BlobDigest: m.Hash}
	if m.BlobLength <= maxInMemory {
		answer.Storage = transfer.NewMemoryChunkStorage(int(m.BlobLength))
		f.stepPuller(n, answer)
		return
	}
	f.core.RunJobThenOnLoop(f.core.DataJobs, func() func() {
		file, err := f.core.StateFolder.Disk.OpenPartialFile(f.core.StateFolder.FilePath(n.purpose.FileName()),
			int64(m.BlobLength),
			wire.MaxChunkBytes, func(k int) [32]byte { return m.ChunkDigests[k] })
		if answer.Err = err; err == nil {
			answer.Storage = file
		}
		return func() {
			if f.fetchByPurpose[n.purpose] == n {
				f.stepPuller(n, answer)
			} else if err == nil {
				_ = file.Close() // The fetch was cancelled in the meantime.
			}
		}
	})
}

// Blob is the content of a fetched blob, in memory or in a file.
type Blob struct {
	ref     wire.BlobRef
	storage transfer.ChunkStorage
	folder  state.Folder
	purpose BlobPurpose
}

// ReadPieces calls take with each piece of the blob in turn, and with the offset of the piece. Offsets and lengths are
// multiples of the length of a vector's element. It may be called only once, from any goroutine.
//
// Chunks in memory were checked against their hashes on arrival. Pieces of a file are checked against the checksums of
// the chunks, because the file may have changed on disk.
func (b *Blob) ReadPieces(take func(at int, piece []byte) error) (err error) {
	defer func() { err = errors.Join(err, b.storage.Close()) }()
	at := 0
	if m, ok := b.storage.(*transfer.MemoryChunkStorage); ok {
		for _, piece := range m.ChunkPayloads() {
			if err := take(at, piece); err != nil {
				return err
			}
			at += len(piece)
		}
		return nil
	}
	f := b.storage.(*store.PartialFile)
	r := io.NewSectionReader(f, 0, int64(b.ref.Length))
	sum, piece := f.NewPayloadVerifier(), make([]byte, min(int(b.ref.Length), wire.MaxChunkBytes))
	for ; at < int(b.ref.Length); at += len(piece) {
		piece = piece[:min(len(piece), int(b.ref.Length)-at)]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		_, _ = sum.Write(piece) // Writing to a hash never fails.
		if err := take(at, piece); err != nil {
			return err
		}
	}
	if sum.CheckPayload() != nil {
		return transfer.ErrBlobCorrupt
	}
	return nil
}

// ReadAll returns the content of the blob. Callers use either ReadAll or ReadPieces.
func (b *Blob) ReadAll() (content []byte, err error) {
	err = b.ReadPieces(func(_ int, piece []byte) error { content = append(content, piece...); return nil })
	return content, err
}

// RemoveFile removes the file of the blob, if it exists.
func (b *Blob) RemoveFile() error { return b.folder.RemoveFile(b.purpose.FileName()) }
