// Package enrolled is the list of the agents that may take part, with their public keys. A list of a million agents is
// not held in memory: it is a sorted file of fixed records, in which an agent is found with one read.
//
// The file is a head and its records, little endian:
//
//	magic "FMA1" | count (4) | stamp of the text (24) | CRC-32C of all else (4)
//	SHA-256 of an agent's id, its first 16 bytes | Ed25519 public key (32)
//	…
//
// Records are in the order of the hashes. All prefixes of hashes are equally likely, so that an index by prefix, of one
// byte an agent, tells which few records to read.
package enrolled

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/wire"
)

// perPrefix is how many records have one prefix, about.
const perPrefix = 4

// List is who may take part. Several goroutines may look agents up.
type List struct {
	recordFile          io.ReaderAt
	firstRecordByPrefix []uint32 // how many records stand before those of each prefix; at last, how many there are
	prefixShift         int      // what a prefix leaves of 32 bits
	bufferPool          sync.Pool
}

// newIndexedList makes the list of a file with so many records, all of which it reads: sum is their checksum and the
// head's.
func newIndexedList(file io.ReaderAt, records int) (l *List, sum uint32, err error) {
	width := bits.Len(uint(records / perPrefix))
	l = &List{recordFile: file, firstRecordByPrefix: make([]uint32, 1<<width+1), prefixShift: 32 - width,
		bufferPool: sync.Pool{New: func() any { return new([]byte) }}}
	const some = 1 << 10
	r := bufio.NewReaderSize(io.NewSectionReader(file, 0, int64(headSize+records*recordSize)), some*recordSize)
	head, err := r.Peek(headSize)
	if err != nil {
		return nil, 0, err
	}
	sum = crc32.Checksum(head[:headSize-4], castagnoli)
	_, err = r.Discard(headSize)
	for left := records; err == nil && left > 0; left -= some {
		var next []byte
		if next, err = r.Peek(min(left, some) * recordSize); err != nil {
			break
		}
		sum = crc32.Update(sum, castagnoli, next)
		for x := range slices.Chunk(next, recordSize) {
			l.firstRecordByPrefix[l.indexPrefixOfHash(x)+1]++
		}
		_, err = r.Discard(len(next))
	}
	for k := 1; k < len(l.firstRecordByPrefix); k++ {
		l.firstRecordByPrefix[k] += l.firstRecordByPrefix[k-1]
	}
	return l, sum, err
}

// indexPrefixOfHash is the place of a hash in the index.
func (l *List) indexPrefixOfHash(hash []byte) uint64 {
	return uint64(binary.BigEndian.Uint32(hash)) >> l.prefixShift
}

// Len is the number of agents.
func (l *List) Len() int { return int(l.firstRecordByPrefix[len(l.firstRecordByPrefix)-1]) }

// Key returns an agent's public key, nil if it is not in the list. The error is that the file cannot be read.
func (l *List) Key(id wire.AgentID) (ed25519.PublicKey, error) {
	wanted := newAgentRecord(id, nil)
	p := l.indexPrefixOfHash(wanted[:])
	first, size := int64(l.firstRecordByPrefix[p]), int(l.firstRecordByPrefix[p+1]-l.firstRecordByPrefix[p])*recordSize
	buffer := l.bufferPool.Get().(*[]byte)
	defer l.bufferPool.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], size)[:size]
	if n, err := l.recordFile.ReadAt(*buffer, int64(headSize)+first*recordSize); n < size {
		return nil, fmt.Errorf("the list of agents cannot be read: %w", err)
	}
	for r := range slices.Chunk(*buffer, recordSize) {
		if bytes.Equal(r[:hashSize], wanted[:hashSize]) {
			return bytes.Clone(r[hashSize:]), nil
		}
	}
	return nil, nil
}

// Digest tells one list from another.
func (l *List) Digest() (sum wire.Digest, err error) {
	h := sha256.New()
	if _, err = io.Copy(h, l.newRecordReader()); err != nil {
		return sum, fmt.Errorf("the list of agents cannot be read: %w", err)
	}
	return wire.Digest(h.Sum(nil)), nil
}

// ContainsAllOf reports whether all agents of another list are in this one, with the same keys.
func (l *List) ContainsAllOf(other *List) (bool, error) {
	mine, theirs := bufio.NewReader(l.newRecordReader()), bufio.NewReader(other.newRecordReader())
	var m, t [recordSize]byte
	for {
		switch _, err := io.ReadFull(theirs, t[:]); {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("the list of agents cannot be read: %w", err)
		}
		for m != t { // both ascend
			switch _, err := io.ReadFull(mine, m[:]); {
			case errors.Is(err, io.EOF), err == nil && bytes.Compare(m[:hashSize], t[:hashSize]) > 0:
				return false, nil
			case err != nil:
				return false, fmt.Errorf("the list of agents cannot be read: %w", err)
			}
		}
	}
}

// newRecordReader reads all records, in their order.
func (l *List) newRecordReader() io.Reader {
	return io.NewSectionReader(l.recordFile, int64(headSize), int64(l.Len())*int64(recordSize))
}

// Close gives the file back; in a list that is in memory it does nothing. It may be called again.
func (l *List) Close() error {
	c, ok := l.recordFile.(io.Closer)
	if !ok {
		return nil
	}
	l.recordFile = bytes.NewReader(nil)
	return c.Close()
}
