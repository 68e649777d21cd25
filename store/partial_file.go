package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// PartialFile is a file of a known length that is filled chunk by chunk, in any order, and outlives the process. It
// needs no bitmap and no order of writes: its opener knows the chunks' hashes, so a chunk that was torn, or never
// reached the disk, does not match its hash. Each byte is written once, and nothing is fsynced on the way. Not safe for
// concurrent use, but for ReadAt.
type PartialFile struct {
	path                 string
	file                 File
	size                 int64
	chunkBytes           int
	isChunkStored        []bool
	storedChunkChecksums chunkChecksums // of the chunks that are there
}

// OpenPartialFile opens the file at path, or makes it, with exactly size bytes, cut into chunks of chunk bytes, the
// last of which may be shorter. sum returns the SHA-256 of chunk k. Reading the file tells which of them it holds: that
// takes a while for a long file, so not on a goroutine that others wait for. Other bytes are overwritten in time.
func (d Disk) OpenPartialFile(path string, size int64, chunk int, sum func(k int) [sha256.Size]byte) (*PartialFile,
	error) {
	if size < 1 || chunk < 1 {
		panic(fmt.Sprintf("store: OpenPartial of %d bytes in chunks of %d", size, chunk))
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

// findStoredChunks reads the file and notes which chunks are there.
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

// HasChunk reports whether chunk k was there when the file was opened, or has been put since.
func (p *PartialFile) HasChunk(k int) bool { return p.isChunkStored[k] }

// PutChunk writes chunk k, which the caller has verified. It is as durable as any write without fsync. A full disk is
// an error that says so; the chunk can be put again.
func (p *PartialFile) PutChunk(k int, payload []byte) error {
	if _, err := p.file.WriteAt(payload, int64(k)*int64(p.chunkBytes)); err != nil {
		return explainFileError("write", p.path, err)
	}
	p.isChunkStored[k], p.storedChunkChecksums.chunkCRCs[k] = true, crc32.Checksum(payload, castagnoli)
	return nil
}

// NewPayloadVerifier returns the sum of the whole, once all chunks are there: the file's bytes are written to it in
// order.
func (p *PartialFile) NewPayloadVerifier() *PayloadVerifier {
	return &PayloadVerifier{expectedChecksums: p.storedChunkChecksums, changedError: CorruptError{p.path,
		"it was changed on disk"}}
}

// ReadAt implements io.ReaderAt.
func (p *PartialFile) ReadAt(b []byte, at int64) (int, error) { return p.file.ReadAt(b, at) }

// Close closes the file and leaves it where it is.
func (p *PartialFile) Close() error { return p.file.Close() }
