package store

import "hash/crc32"

// chunkChecksums are the CRC-32C of each chunk of a payload. This process has made them of bytes that it held against
// their SHA-256, so that it need not hash again what it reads back from its disk: a CRC-32C takes a tenth of the time.
type chunkChecksums struct {
	size, chunk int64 // the last chunk may be shorter
	chunkCRCs   []uint32
}

// singleChunkChecksum is that of a payload of one chunk.
func singleChunkChecksum(size int64, sum uint32) chunkChecksums {
	return chunkChecksums{size, size, []uint32{sum}}
}

// PayloadVerifier tells whether what is read back, in parts and in order, is the payload that was stored.
type PayloadVerifier struct {
	expectedChecksums chunkChecksums
	offset            int64
	currentChunkCRC   uint32 // of the present chunk, up to here
	hasMismatch       bool
	changedError      CorruptError // tells that the payload was changed
}

// Write takes the next bytes of the payload. It never fails.
func (p *PayloadVerifier) Write(part []byte) (int, error) {
	for rest := part; len(rest) > 0; {
		if p.offset == p.expectedChecksums.size {
			p.hasMismatch = true // longer than it was
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

// CheckPayload returns an error unless all that was written is the payload.
func (p *PayloadVerifier) CheckPayload() error {
	if p.hasMismatch || p.offset != p.expectedChecksums.size {
		return p.ChangedError()
	}
	return nil
}

// ChangedError returns the error of a payload that is not the one that was stored.
func (p *PayloadVerifier) ChangedError() error { return &p.changedError }
