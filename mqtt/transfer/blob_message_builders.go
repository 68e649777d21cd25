package transfer

import (
	"crypto/sha256"
	"iter"

	"github.com/fedmesh/fedmesh/wire"
)

// BlobMessages returns a blob's reference for an announcement, and an iterator over its messages with their last topic
// levels. The chunks come before the manifest, so that a client that receives the manifest can download the chunks.
// schema describes the vector in the blob; it is zero for a task. A blob must have 1 to wire.MaxBlobBytes bytes.
func BlobMessages(blob []byte, schema wire.Digest) (wire.BlobRef, iter.Seq2[string, []byte], error) {
	m, err := wire.NewManifest(blob, schema)
	if err != nil {
		return wire.BlobRef{}, nil, err
	}
	ref, parts := SealedBlobMessages(m, blob, nil)
	return ref, parts, nil
}

// SealedBlobMessages is like BlobMessages for a blob whose manifest exists already. It encrypts the messages unless
// seal is nil. Equal blobs have equal encrypted messages under the same seal.
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

// ManifestMessage returns the message of a blob's manifest, encrypted unless seal is nil.
func ManifestMessage(m wire.Manifest, seal *wire.BlobSealer) []byte {
	if seal != nil {
		return seal.SealManifest(m.AppendEncoding(nil))
	}
	return m.AppendEncoding(nil)
}

// ChunkMessage returns the message of chunk k of blob, encrypted unless seal is nil. hash is the blob's hash.
func ChunkMessage(hash wire.Digest, blob []byte, k int, seal *wire.BlobSealer) []byte {
	payload := wire.ChunkPayload(blob, k)
	if seal != nil {
		return seal.AppendSealedChunk(make([]byte, 0, wire.ChunkHeaderSize+len(payload)+wire.SealOverhead), k, payload)
	}
	return wire.AppendChunkMessage(make([]byte, 0, wire.ChunkHeaderSize+len(payload)), hash, k, payload)
}

// openSealedChunk decrypts the payload of a chunk in place and returns it. If seal is nil, it returns the payload
// unchanged.
func openSealedChunk(seal *wire.BlobSealer, k int, payload []byte) ([]byte, error) {
	if seal == nil {
		return payload, nil
	}
	return seal.OpenPart(payload[:0], k, payload)
}
