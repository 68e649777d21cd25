package transfer

import (
	"crypto/sha256"
	"iter"

	"github.com/fedmesh/fedmesh/wire"
)

// Publish describes blob for an announcement and yields the messages that its
// pullers need, each under its last topic level: first the chunks, then the
// manifest, so that a puller that sees the manifest finds the chunks. Each
// message is built when it is asked for. The schema is that of the vector
// inside, zero for a task. A blob must have 1 to wire.MaxBlob bytes.
func Publish(blob []byte, schema wire.Digest) (wire.BlobRef, iter.Seq2[string, []byte], error) {
	m, err := wire.NewManifest(blob, schema)
	if err != nil {
		return wire.BlobRef{}, nil, err
	}
	manifest := m.Append(nil)
	ref := wire.BlobRef{Hash: m.Hash, Manifest: sha256.Sum256(manifest), Length: m.Length}
	parts := func(yield func(string, []byte) bool) {
		for k := range m.Chunks {
			if !yield(ChunkPart(k), chunkMessage(m.Hash, blob, k)) {
				return
			}
		}
		yield(ManifestPart, manifest)
	}
	return ref, parts, nil
}

// chunkMessage returns the message of chunk k of blob.
func chunkMessage(hash wire.Digest, blob []byte, k int) []byte {
	payload := wire.ChunkOf(blob, k)
	return wire.AppendChunk(make([]byte, 0, wire.ChunkHeaderSize+len(payload)), hash, k, payload)
}
