package publish

import (
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// Blob is a task or a model that agents fetch in parts: chunks and a manifest. The zero value means no blob.
type Blob struct {
	Ref      wire.BlobRef // reference to the blob without the blob's data
	Data     []byte
	manifest wire.Manifest
	seal     *wire.BlobSealer // encrypts the parts; nil if they are not encrypted
}

// NewBlob returns a blob of data, whose length task.Compile has limited. schema describes the vector in a model and is
// zero for a task. NewBlob hashes all data, which is slow for a large model.
func NewBlob(data []byte, schema wire.Digest) Blob {
	m, err := wire.NewManifest(data, schema)
	if err != nil {
		panic("publish: " + err.Error())
	}
	ref, _ := transfer.SealedBlobMessages(m, data, nil)
	return Blob{ref, data, m, nil}
}

// SealedForGroup returns the blob with encrypted parts that only agents with the group key can decrypt.
func (b Blob) SealedForGroup(group wire.SealKey) Blob {
	b.seal = group.BlobSealer(b.Ref.Hash)
	b.Ref, _ = transfer.SealedBlobMessages(b.manifest, b.Data, b.seal)
	b.Ref.GroupKeyID = group.ID()
	return b
}

// AnnouncementRef returns a reference to the blob for an announcement. The reference contains the data of the blob if
// the data have at most inline bytes.
func (b Blob) AnnouncementRef(inline int) wire.BlobRef {
	if b.Data == nil {
		return wire.BlobRef{}
	}
	if len(b.Data) > inline {
		return b.Ref
	}
	return wire.BlobRef{Hash: b.Ref.Hash, Length: b.Ref.Length, Inline: b.Data}
}

// chunkMessage returns the name and the content of chunk k, or of the manifest if k is the number of chunks.
func (b Blob) chunkMessage(k int) (name string, message []byte) {
	if k == b.chunkCount() {
		return transfer.ManifestPartName, transfer.ManifestMessage(b.manifest, b.seal)
	}
	return transfer.ChunkPartName(k), transfer.ChunkMessage(b.Ref.Hash, b.Data, k, b.seal)
}

func (b Blob) chunkCount() int { return wire.ChunkCount(len(b.Data)) }

func (b Blob) asListedBlob() ListedBlob { return ListedBlob{b.Ref.Hash, b.chunkCount()} }
