// Package enrolled stores the list of agents with their public keys. A list of a million agents is not held in memory.
// It is a sorted file of fixed-size records, in which an agent is found with one read.
//
// The file consists of a header and records, little endian:
//
//	magic "FMA1" | count (4) | stamp of the text (24) | CRC-32C of all else (4)
//	SHA-256 of an agent's id, its first 16 bytes | Ed25519 public key (32)
//	…
//
// Records are sorted by hash. Hash prefixes are uniformly distributed, so an index by prefix of one byte per agent
// selects the few records to read.
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

// perPrefix is the approximate number of records that share a hash prefix in the index.
const perPrefix = 4

// List is a list of agents. Lookups are safe for concurrent use.
type List struct {
	recordFile          io.ReaderAt
	firstRecordByPrefix []uint32 // number of records before each prefix; the last element is the total
	prefixShift         int      // number of bits that a 32-bit hash is shifted to obtain its prefix
	bufferPool          sync.Pool
}

// newIndexedList reads all records of a list file and builds the index. sum is the checksum of the header and the
// records.
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

// indexPrefixOfHash returns the index in firstRecordByPrefix of the records with the prefix of the given hash.
func (l *List) indexPrefixOfHash(hash []byte) uint64 {
	return uint64(binary.BigEndian.Uint32(hash)) >> l.prefixShift
}

// Len returns the number of agents.
func (l *List) Len() int { return int(l.firstRecordByPrefix[len(l.firstRecordByPrefix)-1]) }

// Key returns the public key of an agent, or nil if it is not in the list. It returns an error if the file cannot be
// read.
func (l *List) Key(id wire.AgentID) (ed25519.PublicKey, error) {
	wanted := newAgentRecord(id, nil)
	p := l.indexPrefixOfHash(wanted[:])
	first, size := int64(l.firstRecordByPrefix[p]), int(l.firstRecordByPrefix[p+1]-l.firstRecordByPrefix[p])*recordSize
	buffer := l.bufferPool.Get().(*[]byte)
	defer l.bufferPool.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], size)[:size]
	if n, err := l.recordFile.ReadAt(*buffer, int64(headSize)+first*recordSize); n < size {
		return nil, fmt.Errorf("cannot read the list of agents: %w", err)
	}
	for r := range slices.Chunk(*buffer, recordSize) {
		if bytes.Equal(r[:hashSize], wanted[:hashSize]) {
			return bytes.Clone(r[hashSize:]), nil
		}
	}
	return nil, nil
}

// Digest returns a hash of the agents and their keys.
func (l *List) Digest() (sum wire.Digest, err error) {
	h := sha256.New()
	if _, err = io.Copy(h, l.newRecordReader()); err != nil {
		return sum, fmt.Errorf("cannot read the list of agents: %w", err)
	}
	return wire.Digest(h.Sum(nil)), nil
}

// ContainsAllOf reports whether this list contains all agents of another list, with the same keys.
func (l *List) ContainsAllOf(other *List) (bool, error) {
	mine, theirs := bufio.NewReader(l.newRecordReader()), bufio.NewReader(other.newRecordReader())
	var m, t [recordSize]byte
	for {
		switch _, err := io.ReadFull(theirs, t[:]); {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("cannot read the list of agents: %w", err)
		}
		for m != t { // Skip records, because both lists are sorted by hash.
			switch _, err := io.ReadFull(mine, m[:]); {
			case errors.Is(err, io.EOF), err == nil && bytes.Compare(m[:hashSize], t[:hashSize]) > 0:
				return false, nil
			case err != nil:
				return false, fmt.Errorf("cannot read the list of agents: %w", err)
			}
		}
	}
}

// newRecordReader returns a reader of all records in order.
func (l *List) newRecordReader() io.Reader {
	return io.NewSectionReader(l.recordFile, int64(headSize), int64(l.Len())*int64(recordSize))
}

// Close closes the file of the list. It does nothing for a list in memory, and may be called repeatedly.
func (l *List) Close() error {
	c, ok := l.recordFile.(io.Closer)
	if !ok {
		return nil
	}
	l.recordFile = bytes.NewReader(nil)
	return c.Close()
}
