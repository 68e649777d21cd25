package transfer

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func TestPublish(t *testing.T) {
	blob := blobOf(5, 2*wire.MaxChunkBytes)
	schema := digestOf([]byte("schema"))
	ref, parts, err := BlobMessages(blob, schema)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var whole []byte
	for name, message := range parts {
		names = append(names, name)
		if len(message) > wire.MaxMessage {
			t.Errorf("part %s has %d bytes", name, len(message))
		}
		if name == ManifestPartName {
			m, err := wire.DecodeManifest(message)
			if err != nil || m.VectorSchema != schema || m.Hash != ref.Hash || m.BlobLength != ref.Length ||
				digestOf(message) != ref.ManifestHash {
				t.Errorf("manifest %+v of %+v: %v", m, ref, err)
			}
			continue
		}
		k, payload, err := wire.DecodeChunkMessage(message, ref.Hash)
		if err != nil || ChunkPartName(k) != name {
			t.Errorf("part %s: chunk %d, %v", name, k, err)
		}
		whole = append(whole, payload...)
	}
	if !slices.Equal(names, []string{"0", "1", "m"}) || !bytes.Equal(whole, blob) {
		t.Errorf("parts %q make %d bytes of %d", names, len(whole), len(blob))
	}
	for range parts {
		break // the consumer may stop early
	}
	if _, _, err := BlobMessages(nil, schema); err == nil {
		t.Error("an empty blob was published")
	}
}
