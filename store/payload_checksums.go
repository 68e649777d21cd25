package store

import "hash/crc32"

// chunkChecksums contains the CRC-32C of each chunk of a payload. The checksums are computed from bytes that were
// verified by SHA-256. Later reads are verified with CRC-32C only, because it takes a tenth of the time.
type chunkChecksums struct {
	size, chunk int64 // size of the payload and of a chunk in bytes; the last chunk may be shorter
	chunkCRCs   []uint32
}

// singleChunkChecksum returns the checksums of a payload that has only one chunk.
func singleChunkChecksum(size int64, sum uint32) chunkChecksums {
	return chunkChecksums{size, size, []uint32{sum}}
}

// PayloadVerifier checks that a payload, written to it in order and in any parts, equals the stored payload.
type PayloadVerifier struct {
	expectedChecksums chunkChecksums
	offset            int64
	currentChunkCRC   uint32 // CRC-32C of the current chunk, up to offset
	hasMismatch       bool
	changedError      CorruptError // error that reports a changed payload
}

// Write adds the next bytes of the payload. It never fails.
func (p *PayloadVerifier) Write(part []byte) (int, error) {
	for rest := part; len(rest) > 0; {
		if p.offset == p.expectedChecksums.size {
			p.hasMismatch = true // the written bytes are longer than the stored payload
			break
		}
		k := p.offset / p.expectedChecksums.chunk
		end := min((k+1)*p.expectedChecksums.chunk, p.expectedChecksums.size)
		n := min(end-p.offset, int64(len(rest)))
		p.currentChunkCRC = crc32.Update(p.currentChunkCRC, castagnoli, rest[:n])
		if p.offset += n; p.offset == end {
			p.hasMismatch = p.hasMismatch || p.currentChunkCRC != p.expectedChecksums.chunkCRCs[k]
			p.currentChunkCRC = 0
		}
		rest = rest[n:]
	}
	return len(part), nil
}

// CheckPayload returns an error if the written bytes differ from the stored payload.
func (p *PayloadVerifier) CheckPayload() error {
	if p.hasMismatch || p.offset != p.expectedChecksums.size {
		return p.ChangedError()
	}
	return nil
}

// ChangedError returns the error for a payload that differs from the stored one.
func (p *PayloadVerifier) ChangedError() error { return &p.changedError }
