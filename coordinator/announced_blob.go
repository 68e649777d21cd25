package coordinator

import (
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// blob is a task or a model, and what agents pull of it. It is made where
// there is time: to hash a large one takes a while.
type blob struct {
	ref      wire.BlobRef // as one that is not inline
	data     []byte
	manifest wire.Manifest
	seal     *wire.BlobSeal // nil if it is open
}

// newBlob describes data, whose length task.Compile has bounded. The schema is
// that of the vector inside, zero for a task.
func newBlob(data []byte, schema wire.Digest) blob {
	m, err := wire.NewManifest(data, schema)
	if err != nil {
		panic("coordinator: " + err.Error())
	}
	ref, _ := transfer.SealedBlobMessages(m, data, nil)
	return blob{ref, data, m, nil}
}

// sealedForGroup is the blob as agents pull it that have the key of the group.
func (b blob) sealedForGroup(group wire.SealKey) blob {
	b.seal = group.BlobSeal(b.ref.Hash)
	b.ref, _ = transfer.SealedBlobMessages(b.manifest, b.data, b.seal)
	b.ref.GroupKeyID = group.ID()
	return b
}

// announcementRef names the blob in an announcement, which holds it if it is small.
func (b blob) announcementRef(inline int) wire.BlobRef {
	if b.data == nil {
		return wire.BlobRef{}
	}
	if len(b.data) > inline {
		return b.ref
	}
	return wire.BlobRef{Hash: b.ref.Hash, Length: b.ref.Length, Inline: b.data}
}

// chunkMessage returns the message of chunk k; that of the manifest comes behind those of all chunks.
func (b blob) chunkMessage(k int) (name string, message []byte) {
	if k == b.chunks() {
		return transfer.ManifestPart, transfer.ManifestMessage(b.manifest, b.seal)
	}
	return transfer.ChunkPart(k), transfer.ChunkMessage(b.ref.Hash, b.data, k, b.seal)
}

func (b blob) chunks() int { return wire.ChunkCount(len(b.data)) }

func (b blob) publishedEntry() publishedBlobEntry { return publishedBlobEntry{b.ref.Hash, b.chunks()} }
