package store

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const partChunk = 1000

// partialOf is a payload with the hashes of its chunks.
type partialOf struct {
	payload []byte
	sums    [][32]byte
}

func newPartialOf(seed uint64, n int) partialOf {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := partialOf{payload: make([]byte, n)}
	for i := range p.payload {
		p.payload[i] = byte(rnd.Uint32())
	}
	for at := 0; at < n; at += partChunk {
		p.sums = append(p.sums, sha256.Sum256(p.payload[at:min(n, at+partChunk)]))
	}
	return p
}

func (p partialOf) sum(k int) [32]byte { return p.sums[k] }

func (p partialOf) chunk(k int) []byte {
	return p.payload[k*partChunk : min(len(p.payload), (k+1)*partChunk)]
}

func (p partialOf) open(t testing.TB, path string) *PartialFile {
	t.Helper()
	f, err := LocalDisk.OpenPartialFile(path, int64(len(p.payload)), partChunk, p.sum)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// has returns the indices of the stored chunks.
func (p partialOf) has(f *PartialFile) (ks []int) {
	for k := range p.sums {
		if f.HasChunk(k) {
			ks = append(ks, k)
		}
	}
	return ks
}

func mustHave(t testing.TB, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("chunks %v are there, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("chunks %v are there, want %v", got, want)
		}
	}
}

// TestPartialResumes checks that stored chunks are found after the file is reopened. Torn chunks, changed chunks and
// chunks of another payload must not be found.
func TestPartialResumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part")
	p := newPartialOf(1, 4*partChunk+1)
	f := p.open(t, path)
	mustHave(t, p.has(f))
	for _, k := range []int{4, 1, 2} {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Fatal(err)
		}
	}
	mustHave(t, p.has(f), 1, 2, 4)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(len(p.payload)) {
		t.Fatalf("%v, %v: want the length of the blob from the first chunk on", info, err)
	}

	disk := mustRead(t, path)
	disk[2*partChunk+500]++
	mustWrite(t, path, disk)
	f = p.open(t, path)
	mustHave(t, p.has(f), 1, 4)
	for _, k := range []int{0, 2, 3} {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := io.ReadAll(io.NewSectionReader(f, 0, int64(len(p.payload))))
	if err != nil || !bytes.Equal(whole, p.payload) {
		t.Fatalf("%v; the whole is right: %v", err, bytes.Equal(whole, p.payload))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	other := newPartialOf(2, 2*partChunk+7) // shorter payload: the file must be truncated
	f = other.open(t, path)
	mustHave(t, other.has(f))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(len(other.payload)) {
		t.Fatalf("%v, %v", info, err)
	}
}

// TestPartialCutAnywhere truncates the file to many lengths, as a crash may do. The chunks before the end must be
// found, and further chunks can be written.
func TestPartialCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part")
	p := newPartialOf(3, 2*partChunk+10)
	for cut := 0; cut <= len(p.payload); cut += 67 {
		mustWrite(t, path, p.payload[:cut])
		f := p.open(t, path)
		for k := range p.sums {
			if want := (k+1)*partChunk <= cut || cut == len(p.payload); f.HasChunk(k) != want {
				t.Fatalf("cut at %d: chunk %d is there: %v", cut, k, f.HasChunk(k))
			}
			if err := f.PutChunk(k, p.chunk(k)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mustRead(t, path), p.payload) {
			t.Fatalf("cut at %d: the file is wrong", cut)
		}
	}
}

func TestPartialNeedsFolder(t *testing.T) {
	p := newPartialOf(4, 5)
	if _, err := LocalDisk.OpenPartialFile(filepath.Join(t.TempDir(), "none", "part"), 5, partChunk,
		p.sum); err == nil ||
		!strings.Contains(err.Error(), "create the folder") {
		t.Errorf("%v", err)
	}
}
