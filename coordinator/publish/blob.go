package publish

import (
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// Blob is a task or a model that agents fetch in parts: its chunks and a manifest. The zero value is no blob.
type Blob struct {
	Ref      wire.BlobRef // without inline data
	Data     []byte
	manifest wire.Manifest
	seal     *wire.BlobSealer // nil if the parts are not sealed
}

// NewBlob makes a blob of data, whose length task.Compile has limited. The schema describes the vector in a model; it
// is zero for a task. NewBlob computes hashes of all data, which takes a while for a large model.
func NewBlob(data []byte, schema wire.Digest) Blob {
	m, err := wire.NewManifest(data, schema)
	if err != nil {
		panic("publish: " + err.Error())
	}
	ref, _ := transfer.SealedBlobMessages(m, data, nil)
	return Blob{ref, data, m, nil}
}

// SealedForGroup returns the blob with parts that only agents with the group key can open.
func (b Blob) SealedForGroup(group wire.SealKey) Blob {
	b.seal = group.BlobSealer(b.Ref.Hash)
	b.Ref, _ = transfer.SealedBlobMessages(b.manifest, b.Data, b.seal)
	b.Ref.GroupKeyID = group.ID()
	return b
}

// AnnouncementRef returns the reference for an announcement. It contains the data if they have at most inline bytes.
func (b Blob) AnnouncementRef(inline int) wire.BlobRef {
	if b.Data == nil {
		return wire.BlobRef{}
	}
	if len(b.Data) > inline {
		return b.Ref
	}
	return wire.BlobRef{Hash: b.Ref.Hash, Length: b.Ref.Length, Inline: b.Data}
}

// chunkMessage returns the name and the message of chunk k. The manifest follows the last chunk.
func (b Blob) chunkMessage(k int) (name string, message []byte) {
	if k == b.chunkCount() {
		return transfer.ManifestPartName, transfer.ManifestMessage(b.manifest, b.seal)
	}
	return transfer.ChunkPartName(k), transfer.ChunkMessage(b.Ref.Hash, b.Data, k, b.seal)
}

func (b Blob) chunkCount() int { return wire.ChunkCount(len(b.Data)) }

func (b Blob) asListedBlob() ListedBlob { return ListedBlob{b.Ref.Hash, b.chunkCount()} }
