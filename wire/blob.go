package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/fedmesh/fedmesh/spec"
)

// Manifest describes a blob: a model or task for the agents, or an update for the coordinator. Every chunk except the
// last has MaxChunkBytes bytes of payload.
type Manifest struct {
	Hash         Digest // digest of the blob, see BlobDigest
	BlobLength   uint32
	Codec        spec.Codec // codec of the vector; raw for a task; a section of an update may override it
	VectorSchema Digest     // hash of the schema of the vector; zero for a task
	ChunkDigests []Digest
}

// NewManifest returns the manifest of p, a raw vector or a task. p must have 1 to MaxBlobBytes bytes.
func NewManifest(p []byte, schema Digest) (Manifest, error) {
	if len(p) == 0 || len(p) > MaxBlobBytes {
		return Manifest{}, fmt.Errorf("blob has %d bytes, but must have between 1 and %d", len(p), MaxBlobBytes)
	}
	m := Manifest{BlobLength: uint32(len(p)), Codec: spec.CodecRaw, VectorSchema: schema, ChunkDigests: chunkDigests(p)}
	m.Hash = blobDigestOfChunks(m.ChunkDigests)
	return m, nil
}

// BlobDigest returns the digest of the blob p: the SHA-256 of the concatenated SHA-256 digests of its chunks. Data
// verified chunk by chunk therefore need not be hashed again as a whole.
func BlobDigest(p []byte) Digest { return blobDigestOfChunks(chunkDigests(p)) }

func chunkDigests(p []byte) []Digest {
	all := make([]Digest, ChunkCount(len(p)))
	for k := range all {
		all[k] = sha256.Sum256(ChunkPayload(p, k))
	}
	return all
}

func blobDigestOfChunks(chunks []Digest) Digest {
	all := make([]byte, 0, len(chunks)*len(Digest{}))
	for _, d := range chunks {
		all = append(all, d[:]...)
	}
	return sha256.Sum256(all)
}

// BlobHasher is an io.Writer that computes the BlobDigest of the written bytes.
type BlobHasher struct {
	chunkHash      hash.Hash
	chunkBytesLeft int // number of bytes that are missing until the current chunk is full
	digestListHash hash.Hash
}

// NewBlobHasher returns a BlobHasher for an empty blob.
func NewBlobHasher() *BlobHasher {
	return &BlobHasher{chunkHash: sha256.New(), chunkBytesLeft: MaxChunkBytes, digestListHash: sha256.New()}
}

// Write implements io.Writer. It never fails.
func (s *BlobHasher) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(s.chunkBytesLeft, len(rest))
		s.chunkHash.Write(rest[:n])
		if s.chunkBytesLeft -= n; s.chunkBytesLeft == 0 {
			s.finishChunk()
		}
		rest = rest[n:]
	}
	return len(p), nil
}

func (s *BlobHasher) finishChunk() {
	var d Digest
	s.digestListHash.Write(s.chunkHash.Sum(d[:0]))
	s.chunkHash.Reset()
	s.chunkBytesLeft = MaxChunkBytes
}

// Digest returns the digest of the written blob. Write must not be called afterwards.
func (s *BlobHasher) Digest() Digest {
	if s.chunkBytesLeft < MaxChunkBytes {
		s.finishChunk()
	}
	return Digest(s.digestListHash.Sum(nil))
}

// ChunkCount returns the number of chunks of a blob of length bytes.
func ChunkCount(length int) int { return (length + MaxChunkBytes - 1) / MaxChunkBytes }

// ChunkPayload returns the payload of chunk k of the blob p, without copying.
func ChunkPayload(p []byte, k int) []byte {
	return p[k*MaxChunkBytes : min((k+1)*MaxChunkBytes, len(p))]
}

// ChunkLen returns the payload length of chunk k in bytes.
func (m *Manifest) ChunkLen(k int) int { return min(MaxChunkBytes, int(m.BlobLength)-k*MaxChunkBytes) }

// AppendEncoding appends the manifest's encoding to dst.
func (m *Manifest) AppendEncoding(dst []byte) []byte {
	w := writer{dst}
	w.digest(m.Hash)
	w.u32(m.BlobLength)
	w.u8(updateCodecByte(m.Codec))
	w.digest(m.VectorSchema)
	w.u32(uint32(len(m.ChunkDigests)))
	for _, d := range m.ChunkDigests {
		w.digest(d)
	}
	return w.encoded
}

// DecodeManifest decodes a manifest that is not part of another message.
func DecodeManifest(p []byte) (Manifest, error) {
	r := reader{unread: p}
	m := r.manifest()
	return m, r.finish("manifest")
}

func (r *reader) manifest() (m Manifest) {
	m.Hash = r.digest()
	m.BlobLength = r.u32()
	m.Codec = codecCodes.readValue(r, "codec")
	m.VectorSchema = r.digest()
	n := r.listLength("chunks", MaxBlobChunks, len(Digest{}))
	if r.err == nil && (m.BlobLength == 0 || m.BlobLength > MaxBlobBytes || n != ChunkCount(int(m.BlobLength))) {
		r.failf("invalid number of chunks %d for a blob of %d bytes", n, m.BlobLength)
	}
	if r.err != nil {
		return Manifest{}
	}
	m.ChunkDigests = make([]Digest, n)
	for k := range m.ChunkDigests {
		m.ChunkDigests[k] = r.digest()
	}
	if r.err == nil && blobDigestOfChunks(m.ChunkDigests) != m.Hash {
		r.failf("chunk hashes do not match the blob hash")
	}
	return m
}

// BlobRef refers to a blob in an announcement. Inline contains the content of a small blob. An agent fetches a larger
// blob from the broker, starting with its manifest.
type BlobRef struct {
	Hash         Digest // digest of the blob, see BlobDigest
	ManifestHash Digest // SHA-256 of the encoded manifest, or of SealedInline; zero if Inline contains the blob
	Length       uint32
	Inline       []byte
	// GroupKeyID is the SealKey.ID of the key that encrypts (seals) the blob; 0 means that the blob is not encrypted.
	// SealedInline contains a small encrypted blob; for a larger blob, the manifest and the chunks are encrypted. The
	// field is encoded in the announcement section "sealed".
	GroupKeyID   uint64
	SealedInline []byte `json:"Sealed"`
}

// OpenSealed decrypts the inline blob of an encrypted reference and returns an unencrypted reference to the blob.
func (b BlobRef) OpenSealed(group SealKey) (BlobRef, error) {
	whole, err := group.BlobSealer(b.Hash).OpenPart(nil, SealedWholeBlob, b.SealedInline)
	switch {
	case err != nil:
		return BlobRef{}, err
	case len(whole) != int(b.Length) || BlobDigest(whole) != b.Hash:
		return BlobRef{}, errors.New("sealed content does not match its hash")
	}
	return BlobRef{Hash: b.Hash, Length: b.Length, Inline: whole}, nil
}

// SealInline returns a reference that contains the inline blob in encrypted form.
func (b BlobRef) SealInline(group SealKey) BlobRef {
	sealed := group.BlobSealer(b.Hash).SealPart(nil, SealedWholeBlob, b.Inline)
	return BlobRef{Hash: b.Hash, ManifestHash: sha256.Sum256(sealed), Length: b.Length, GroupKeyID: group.ID(),
		SealedInline: sealed}
}

// IsSet reports whether b refers to a blob.
func (b *BlobRef) IsSet() bool { return b.Length > 0 }

func (w *writer) blobRef(b *BlobRef) {
	w.digest(b.Hash)
	w.digest(b.ManifestHash)
	w.u32(b.Length)
	w.bytes(b.Inline)
}

func (r *reader) blobRef(field string) (b BlobRef) {
	b.Hash = r.digest()
	b.ManifestHash = r.digest()
	b.Length = r.u32()
	b.Inline = r.bytes(field, MaxInlineBlobBytes)
	switch {
	case r.err != nil:
	case b.Length > MaxBlobBytes:
		r.failf("%s has %d bytes, which exceeds the limit of %d", field, b.Length, MaxBlobBytes)
	case b.Length == 0:
		r.failf("length of %s is 0", field)
	case len(b.Inline) > 0 && (len(b.Inline) != int(b.Length) || BlobDigest(b.Inline) != b.Hash):
		r.failf("%s does not match its hash", field)
	case (len(b.Inline) > 0) != b.ManifestHash.IsZero():
		r.failf("%s must have either inline content or a manifest hash", field)
	}
	if len(b.Inline) == 0 {
		b.Inline = nil
	}
	return b
}

// ChunkHeaderSize is the length of the header before a chunk's payload.
const ChunkHeaderSize = 24

const chunkMagic = "FEDC"

// AppendChunkMessage appends the message with chunk k of the blob with the given hash to dst. The message consists of a
// header and the payload. The header has 24 bytes: magic 4, version 1, zero 3, k 4, payload length 4, and the first 8
// bytes of the blob's hash. Chunks are not signed, because the manifest with the hashes of the chunks is signed.
func AppendChunkMessage(dst []byte, hash Digest, k int, payload []byte) []byte {
	return append(appendChunkHeader(dst, hash, k, len(payload)), payload...)
}

func appendChunkHeader(dst []byte, hash Digest, k, length int) []byte {
	w := writer{dst}
	w.encoded = append(w.encoded, chunkMagic...)
	w.encoded = append(w.encoded, ProtocolVersion, 0, 0, 0)
	w.u32(uint32(k))
	w.u32(uint32(length))
	return append(w.encoded, hash[:8]...)
}

// DecodeChunkMessage decodes a chunk of the blob with the given hash. The payload is a view of p. Its length is checked
// against the chunk header, not against the manifest.
func DecodeChunkMessage(p []byte, hash Digest) (k int, payload []byte, err error) {
	le := binary.LittleEndian
	switch {
	case len(p) <= ChunkHeaderSize || string(p[:4]) != chunkMagic || le.Uint32(p[4:])>>8 != 0:
		return 0, nil, fmt.Errorf("%w: %d bytes are not a valid chunk", ErrMalformed, len(p))
	case p[4] != ProtocolVersion:
		return 0, nil, &ProtocolVersionError{MessageVersion: p[4]}
	case string(p[16:24]) != string(hash[:8]):
		return 0, nil, fmt.Errorf("%w: chunk belongs to a different blob", ErrMalformed)
	case len(p) > ChunkHeaderSize+MaxChunkBytes+SealOverhead ||
		int64(le.Uint32(p[12:])) != int64(len(p)-ChunkHeaderSize):
		return 0, nil, fmt.Errorf("%w: invalid chunk length", ErrMalformed)
	case le.Uint32(p[8:]) >= MaxBlobChunks:
		return 0, nil, fmt.Errorf("%w: invalid chunk number %d", ErrMalformed, le.Uint32(p[8:]))
	}
	return int(le.Uint32(p[8:])), p[ChunkHeaderSize:], nil
}
