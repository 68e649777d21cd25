package store

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

// TestPartialSum checks that the verifier detects changes of the file, for reads in parts of any size and after the
// file is reopened.
func TestPartialSum(t *testing.T) {
	path, p := filepath.Join(t.TempDir(), "part"), newPartialOf(5, 3*partChunk+7)
	f := p.open(t, path)
	for _, k := range []int{3, 0} {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = p.open(t, path) // finds two stored chunks
	for _, k := range []int{2, 1} {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(payload []byte, step int) error {
		sum := f.NewPayloadVerifier()
		for part := range slices.Chunk(payload, step) {
			_, _ = sum.Write(part) // never fails
		}
		return sum.CheckPayload()
	}
	for _, step := range []int{1, 7, partChunk, partChunk + 1, len(p.payload)} {
		if err := check(p.payload, step); err != nil {
			t.Errorf("in parts of %d bytes: %v", step, err)
		}
		for _, at := range []int{0, partChunk - 1, partChunk, 2*partChunk + 500, len(p.payload) - 1} {
			other := slices.Clone(p.payload)
			other[at] ^= 0x10
			if err := check(other, step); !errors.As(err, new(*CorruptError)) {
				t.Errorf("in parts of %d bytes: a bit of byte %d is another one, and the error is %v", step, at, err)
			}
		}
		for name, other := range map[string][]byte{"longer": append(slices.Clone(p.payload), 0), "empty": nil,
			"shorter": p.payload[:len(p.payload)-1], "a chunk shorter": p.payload[:3*partChunk]} {
			if err := check(other, step); !errors.As(err, new(*CorruptError)) {
				t.Errorf("%s, in parts of %d bytes: error %v", name, step, err)
			}
		}
	}
}
