package store

import "hash/crc32"

// checksums are the CRC-32C of each chunk of a payload. This process has made them of bytes that it held against their
// SHA-256, so that it need not hash again what it reads back from its disk: a CRC-32C takes a tenth of the time.
type checksums struct {
	size, chunk int64 // the last chunk may be shorter
	of          []uint32
}

// wholeSum is that of a payload of one chunk.
func wholeSum(size int64, sum uint32) checksums { return checksums{size, size, []uint32{sum}} }

// PayloadSum tells whether what is read back, in parts and in order, is the payload that was stored.
type PayloadSum struct {
	want  checksums
	at    int64
	sum   uint32 // of the present chunk, up to here
	wrong bool
	err   CorruptError // tells that the payload was changed
}

// Write takes the next bytes of the payload. It never fails.
func (p *PayloadSum) Write(part []byte) (int, error) {
	for rest := part; len(rest) > 0; {
		if p.at == p.want.size {
			p.wrong = true // longer than it was
			break
		}
		k := p.at / p.want.chunk
		end := min((k+1)*p.want.chunk, p.want.size)
		n := min(end-p.at, int64(len(rest)))
		p.sum = crc32.Update(p.sum, castagnoli, rest[:n])
		if p.at += n; p.at == end {
			p.wrong = p.wrong || p.sum != p.want.of[k]
			p.sum = 0
		}
		rest = rest[n:]
	}
	return len(part), nil
}

// Check returns an error unless all that was written is the payload.
func (p *PayloadSum) Check() error {
	if p.wrong || p.at != p.want.size {
		return p.Changed()
	}
	return nil
}

// Changed returns the error of a payload that is not the one that was stored.
func (p *PayloadSum) Changed() error { return &p.err }
