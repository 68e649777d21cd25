package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// PartialFile is a file of known length that is filled chunk by chunk, in any order. The caller supplies the SHA-256 of
// each chunk, so that after a restart OpenPartialFile finds the complete chunks and detects torn or missing ones.
// Nothing is fsynced. Except for ReadAt, the methods must not be called concurrently.
type PartialFile struct {
	path                 string
	file                 File
	size                 int64
	chunkBytes           int
	isChunkStored        []bool
	storedChunkChecksums chunkChecksums // CRC-32C of the stored chunks
}

// OpenPartialFile opens or creates the file at path with size bytes and chunks of chunk bytes; the last chunk may be
// shorter. sum returns the SHA-256 of chunk k. The whole file is read to find the stored chunks, which can take long,
// so do not call it on the owner goroutine.
func (d Disk) OpenPartialFile(path string, size int64, chunk int, sum func(k int) [sha256.Size]byte) (*PartialFile,
	error) {
	if size < 1 || chunk < 1 {
		panic(fmt.Sprintf("store: OpenPartialFile: the size is %d and the chunk size is %d, but both must be positive",
			size, chunk))
	}
	f, err := d.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainFileError("open", path, err)
	}
	n := (size + int64(chunk) - 1) / int64(chunk)
	p := &PartialFile{path: path, file: f, size: size, chunkBytes: chunk, isChunkStored: make([]bool, n),
		storedChunkChecksums: chunkChecksums{size, int64(chunk), make([]uint32, n)}}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil && info.Size() > 0 {
		err = p.findStoredChunks(sum)
	}
	if err != nil {
		return nil, errors.Join(explainFileError("open", path, err), f.Close())
	}
	return p, nil
}

// findStoredChunks reads the file and marks the chunks that match their hashes.
func (p *PartialFile) findStoredChunks(sum func(k int) [sha256.Size]byte) error {
	buf := make([]byte, min(int64(p.chunkBytes), p.size))
	for k := range p.isChunkStored {
		at := int64(k) * int64(p.chunkBytes)
		b := buf[:min(int64(p.chunkBytes), p.size-at)]
		if _, err := p.file.ReadAt(b, at); err != nil {
			return err
		}
		p.isChunkStored[k], p.storedChunkChecksums.chunkCRCs[k] = sha256.Sum256(b) == sum(k), crc32.Checksum(b,
			castagnoli)
	}
	return nil
}

// HasChunk reports whether chunk k is stored.
func (p *PartialFile) HasChunk(k int) bool { return p.isChunkStored[k] }

// PutChunk writes chunk k without fsync. The caller must have verified the payload. After an error, such as a full
// disk, the chunk can be written again.
func (p *PartialFile) PutChunk(k int, payload []byte) error {
	if _, err := p.file.WriteAt(payload, int64(k)*int64(p.chunkBytes)); err != nil {
		return explainFileError("write", p.path, err)
	}
	p.isChunkStored[k], p.storedChunkChecksums.chunkCRCs[k] = true, crc32.Checksum(payload, castagnoli)
	return nil
}

// NewPayloadVerifier returns a verifier for the content of the file. All chunks must be stored, and the bytes must be
// written to the verifier in order.
func (p *PartialFile) NewPayloadVerifier() *PayloadVerifier {
	return &PayloadVerifier{expectedChecksums: p.storedChunkChecksums, changedError: CorruptError{p.path,
		"the content of the file was changed on disk"}}
}

// ReadAt implements io.ReaderAt.
func (p *PartialFile) ReadAt(b []byte, at int64) (int, error) { return p.file.ReadAt(b, at) }

// Close closes the file. It does not remove it.
func (p *PartialFile) Close() error { return p.file.Close() }
