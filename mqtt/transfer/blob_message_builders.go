package transfer

import (
	"crypto/sha256"
	"iter"

	"github.com/fedmesh/fedmesh/wire"
)

// BlobMessages describes blob for an announcement and yields the messages that its
// pullers need, each under its last topic level: first the chunks, then the
// manifest, so that a puller that sees the manifest finds the chunks. Each
// message is built when it is asked for. The schema is that of the vector
// inside, zero for a task. A blob must have 1 to wire.MaxBlobBytes bytes.
func BlobMessages(blob []byte, schema wire.Digest) (wire.BlobRef, iter.Seq2[string, []byte], error) {
	m, err := wire.NewManifest(blob, schema)
	if err != nil {
		return wire.BlobRef{}, nil, err
	}
	ref, parts := SealedBlobMessages(m, blob, nil)
	return ref, parts, nil
}

// SealedBlobMessages is Publish for a blob whose manifest is there, and which is sealed; with nil it is open. Equal
// blobs have equal messages under one seal.
func SealedBlobMessages(m wire.Manifest, blob []byte, seal *wire.BlobSealer) (wire.BlobRef, iter.Seq2[string, []byte]) {
	manifest := ManifestMessage(m, seal)
	ref := wire.BlobRef{Hash: m.Hash, ManifestHash: sha256.Sum256(manifest), Length: m.BlobLength}
	return ref, func(yield func(string, []byte) bool) {
		for k := range m.ChunkDigests {
			if !yield(ChunkPartName(k), ChunkMessage(m.Hash, blob, k, seal)) {
				return
			}
		}
		yield(ManifestPartName, manifest)
	}
}

// ManifestMessage returns the message of a blob's manifest, sealed unless seal is nil.
func ManifestMessage(m wire.Manifest, seal *wire.BlobSealer) []byte {
	if seal != nil {
		return seal.SealManifest(m.AppendEncoding(nil))
	}
	return m.AppendEncoding(nil)
}

// ChunkMessage returns the message of chunk k of blob, whose hash is given, sealed unless seal is nil.
func ChunkMessage(hash wire.Digest, blob []byte, k int, seal *wire.BlobSealer) []byte {
	payload := wire.ChunkPayload(blob, k)
	if seal != nil {
		return seal.AppendSealedChunk(make([]byte, 0, wire.ChunkHeaderSize+len(payload)+wire.SealOverhead), k, payload)
	}
	return wire.AppendChunkMessage(make([]byte, 0, wire.ChunkHeaderSize+len(payload)), hash, k, payload)
}

// openSealedChunk returns the payload of a chunk as it was before it was sealed, in its place, or as it came if seal is
// nil.
func openSealedChunk(seal *wire.BlobSealer, k int, payload []byte) ([]byte, error) {
	if seal == nil {
		return payload, nil
	}
	return seal.OpenPart(payload[:0], k, payload)
}
