package fetch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestReadChecksAFile checks that a blob's file is verified when it is read, since it may have changed on disk.
func TestReadChecksAFile(t *testing.T) {
	blob := bytes.Repeat([]byte{1, 2, 3, 4}, 40000)
	m, err := wire.NewManifest(blob, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), Model.FileName())
	for _, changed := range []bool{false, true} {
		f, err := store.LocalDisk.OpenPartialFile(path, int64(len(blob)), wire.MaxChunkBytes,
			func(k int) [32]byte { return m.ChunkDigests[k] })
		if err != nil {
			t.Fatal(err)
		}
		for k := range m.ChunkDigests {
			if err := f.PutChunk(k, wire.ChunkPayload(blob, k)); err != nil {
				t.Fatal(err)
			}
		}
		want := error(nil)
		if changed {
			want = transfer.ErrBlobCorrupt
			if err := os.WriteFile(path, make([]byte, len(blob)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := &Blob{ref: wire.BlobRef{Hash: m.Hash, Length: m.BlobLength}, storage: f}
		got, err := b.ReadAll()
		if !errors.Is(err, want) || !changed && !bytes.Equal(got, blob) {
			t.Errorf("changed %v: %d bytes, %v", changed, len(got), err)
		}
	}
}
