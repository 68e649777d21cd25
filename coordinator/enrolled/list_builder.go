package enrolled

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"sort"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	magic      = "FMA1"
	headSize   = len(magic) + 4 + 3*8 + 4
	hashSize   = 16
	recordSize = hashSize + ed25519.PublicKeySize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// agentRecord is the record of an agent: the hash of its id, and its public key.
type agentRecord [recordSize]byte

func newAgentRecord(id wire.AgentID, key ed25519.PublicKey) (r agentRecord) {
	var name [wire.MaxAgentID]byte
	h := sha256.Sum256(name[:copy(name[:], id)])
	copy(r[:hashSize], h[:])
	copy(r[hashSize:], key)
	return r
}

// ListBuilder collects and sorts the records of a list in memory, with 48 bytes per agent.
type ListBuilder struct {
	fileBytes []byte
}

// NewListBuilder returns a builder with capacity for the given number of agents.
func NewListBuilder(agents int) *ListBuilder {
	return &ListBuilder{make([]byte, headSize, headSize+agents*recordSize)}
}

// Add adds an agent. The caller must have validated the id and the key.
func (t *ListBuilder) Add(id wire.AgentID, key ed25519.PublicKey) {
	r := newAgentRecord(id, key)
	t.fileBytes = append(t.fileBytes, r[:]...)
}

// Len returns the number of agents.
func (t *ListBuilder) Len() int { return (len(t.fileBytes) - headSize) / recordSize }

func (t *ListBuilder) recordAt(k int) []byte { return t.fileBytes[headSize+k*recordSize:][:recordSize] }

// FindRepeatedKey returns a public key that occurs twice, or nil. It sorts the records by key.
func (t *ListBuilder) FindRepeatedKey() ed25519.PublicKey {
	if r := t.sortByByteRange(hashSize, recordSize); r != nil {
		return r[hashSize:]
	}
	return nil
}

// FindRepeatedID reports whether an id occurs twice, and returns a function that recognises this id. It sorts the
// records by id, as in a list.
func (t *ListBuilder) FindRepeatedID() (is func(wire.AgentID) bool, repeated bool) {
	r := t.sortByByteRange(0, hashSize)
	return func(id wire.AgentID) bool {
		other := newAgentRecord(id, nil)
		return bytes.Equal(r[:hashSize], other[:hashSize])
	}, r != nil
}

// sortByByteRange sorts the records by bytes [from, to). It returns a record with the same bytes as its predecessor, or
// nil.
func (t *ListBuilder) sortByByteRange(from, to int) []byte {
	sort.Sort(recordsByByteRange{t, from, to})
	for k := 1; k < t.Len(); k++ {
		if bytes.Equal(t.recordAt(k - 1)[from:to], t.recordAt(k)[from:to]) {
			return t.recordAt(k)
		}
	}
	return nil
}

// recordsByByteRange implements sort.Interface by comparing bytes [from, to) of the records.
type recordsByByteRange struct {
	*ListBuilder
	from, to int
}

func (o recordsByByteRange) Less(i, j int) bool {
	return bytes.Compare(o.recordAt(i)[o.from:o.to], o.recordAt(j)[o.from:o.to]) < 0
}

func (o recordsByByteRange) Swap(i, j int) {
	a, b := (*agentRecord)(o.recordAt(i)), (*agentRecord)(o.recordAt(j))
	*a, *b = *b, *a
}

// BuildList returns the list of the records, which FindRepeatedID must have sorted. The builder must not be changed
// afterwards.
func (t *ListBuilder) BuildList() *List {
	l, _, err := newIndexedList(bytes.NewReader(t.fileBytes), t.Len())
	if err != nil {
		panic("enrolled: cannot read the list of agents from memory: " + err.Error())
	}
	return l
}

// NewListFromKeys returns a list in memory.
func NewListFromKeys(keys map[wire.AgentID]ed25519.PublicKey) *List {
	t := NewListBuilder(len(keys))
	for id, key := range keys {
		t.Add(id, key)
	}
	if _, repeated := t.FindRepeatedID(); repeated {
		panic("enrolled: two agent ids have the same hash")
	}
	return t.BuildList()
}

// Save writes the records, which FindRepeatedID must have sorted, to a file atomically. text identifies the text file
// from which the list was made.
func (t *ListBuilder) Save(d store.Disk, path string, text store.FileStamp) error {
	head := append(t.fileBytes[:0], magic...)
	head = binary.LittleEndian.AppendUint32(head, uint32(t.Len()))
	for _, x := range []int64{text.Size, text.ModifiedAt, text.ChangedAt} {
		head = binary.LittleEndian.AppendUint64(head, uint64(x))
	}
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, t.fileBytes[headSize:])
	binary.LittleEndian.PutUint32(t.fileBytes[headSize-4:], sum)
	return d.WriteFileDurably(path, t.fileBytes, 0o600)
}
