package wire

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Sealed data are encrypted, so that the receiver can read them but the broker cannot (docs/PROTOCOL.md, section 15).
// Sealing is deterministic: the same data always give the same bytes. Different data never share a key and nonce,
// because these are derived from a MAC or digest of the data.

// SealOverhead is the number of bytes that sealing (encryption with authentication) adds to the data.
const SealOverhead = chacha20poly1305.Overhead

// ErrSealDoesNotOpen is the error for sealed bytes that were sealed with another key or modified.
var ErrSealDoesNotOpen = errors.New("sealed data cannot be decrypted")

// SealSecret is a secret of the coordinator, from which the coordinator's encryption keys are derived. It is replaced
// from time to time.
type SealSecret [32]byte

// x25519PrivateKey returns the private key that belongs to the announced public key.
func (s SealSecret) x25519PrivateKey() (*ecdh.PrivateKey, error) {
	b, err := hkdf.Key(sha256.New, s[:], nil, "fl/v1/seals", 32)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(b)
}

// PublicKey returns the public key that the coordinator announces.
func (s SealSecret) PublicKey() (X25519PublicKey, error) {
	k, err := s.x25519PrivateKey()
	if err != nil {
		return X25519PublicKey{}, err
	}
	return X25519PublicKey(k.PublicKey().Bytes()), nil
}

// GroupSealKey returns the key that encrypts blobs (models and tasks) for all agents.
func (s SealSecret) GroupSealKey() (SealKey, error) {
	k, err := hkdf.Key(sha256.New, s[:], nil, "fl/v1/group", len(SealKey{}))
	return SealKey(k), err
}

// AgentSealKeys returns the keys that the coordinator shares with one agent. It returns an error if the agent's key has
// no X25519 form.
func (s SealSecret) AgentSealKeys(agent ed25519.PublicKey) (AgentSealKeys, error) {
	private, err := s.x25519PrivateKey()
	if err != nil {
		return AgentSealKeys{}, err
	}
	u, err := x25519PublicFromEd25519(agent)
	if err != nil {
		return AgentSealKeys{}, err
	}
	return deriveAgentSealKeys(private, u, X25519PublicKey(private.PublicKey().Bytes()), agent)
}

// AgentSealKeys holds the two encryption keys that the coordinator and one agent share. They are valid until the
// coordinator announces another public key.
type AgentSealKeys struct {
	FromAgentKey SealKey // key for messages from the agent
	ToAgentKey   SealKey // key for messages to the agent
}

// NewAgentSealKeys derives the keys that an agent shares with the coordinator from the agent's private key and the
// coordinator's announced public key.
func NewAgentSealKeys(own ed25519.PrivateKey, announced X25519PublicKey) (AgentSealKeys, error) {
	private, err := ecdh.X25519().NewPrivateKey(x25519ScalarOf(own))
	if err != nil {
		return AgentSealKeys{}, err
	}
	return deriveAgentSealKeys(private, announced[:], announced, own.Public().(ed25519.PublicKey))
}

func deriveAgentSealKeys(own *ecdh.PrivateKey, peer []byte, announced X25519PublicKey,
	agent ed25519.PublicKey) (p AgentSealKeys,
	err error) {
	public, err := ecdh.X25519().NewPublicKey(peer)
	if err != nil {
		return p, err
	}
	secret, err := own.ECDH(public)
	if err != nil {
		return p, err
	}
	both, err := hkdf.Key(sha256.New, secret, nil, "fl/v1/seal "+string(announced[:])+string(agent), 64)
	if err != nil {
		return p, err
	}
	return AgentSealKeys{FromAgentKey: SealKey(both[:32]), ToAgentKey: SealKey(both[32:])}, nil
}

// SealKey is a symmetric key that seals messages or blobs.
type SealKey [32]byte

// ID returns a number that identifies a group key. It is never 0 and reveals nothing about the key.
func (k SealKey) ID() uint64 {
	sum := k.mac("id")
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// mac returns a message authentication code (MAC) of the given data. Different values of the parameter use give
// unrelated codes.
func (k SealKey) mac(use string, said ...[]byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(use))
	h.Write([]byte{0})
	for _, p := range said {
		h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// aead returns a cipher whose key is derived from this key, use and said. The caller must encrypt at most one text per
// nonce.
func (k SealKey) aead(use string, said []byte) cipher.AEAD {
	key := k.mac(use, said)
	a, err := chacha20poly1305.New(key[:])
	if err != nil {
		panic("wire: " + err.Error()) // This cannot happen: the key has the correct length.
	}
	return a
}

// sealText appends a salt and the encrypted text to dst. The parameter place is associated data that binds the text to
// its context. The salt is a MAC of place and text, so that two different texts never share a key.
func (k SealKey) sealText(dst []byte, use string, place, text []byte) []byte {
	salt := k.mac(use+" salt", place, text)
	dst = append(dst, salt[:sealSaltSize]...)
	return k.aead(use, salt[:sealSaltSize]).Seal(dst, zeroNonce[:], text, place)
}

func (k SealKey) openText(use string, place, sealed []byte) ([]byte, error) {
	if len(sealed) < sealSaltSize {
		return nil, ErrSealDoesNotOpen
	}
	text, err := k.aead(use, sealed[:sealSaltSize]).Open(nil, zeroNonce[:], sealed[sealSaltSize:], place)
	if err != nil {
		return nil, ErrSealDoesNotOpen
	}
	return text, nil
}

var zeroNonce [chacha20poly1305.NonceSize]byte

// Sizes of the parts in the body of a TypeSealed envelope. The body contains the first bytes of the announced key, a
// salt, and the encrypted message type and body.
const (
	sealKeyHintSize = 8
	sealSaltSize    = 16
	// SealedBodyOverhead is the number of bytes by which a sealed body is longer than the inner body.
	SealedBodyOverhead = sealKeyHintSize + sealSaltSize + 1 + SealOverhead
)

// sealContext returns the header fields to which a sealed message is bound: all fields except the type, the length and
// the body hash.
func (h *Header) sealContext() []byte {
	w := writer{make([]byte, 0, MaxFederation+MaxAgentID+36)}
	w.encoded = appendPaddedName(w.encoded, string(h.Federation), MaxFederation)
	w.encoded = appendPaddedName(w.encoded, string(h.Sender), MaxAgentID)
	w.u64(uint64(h.Epoch))
	w.u64(uint64(h.Run))
	w.u64(uint64(h.Round))
	w.u64(h.Sequence)
	w.u32(uint32(h.Root))
	return w.encoded
}

// SealMessage encrypts a body of type t and returns it as the body of a TypeSealed envelope with header h.
func (k SealKey) SealMessage(announced X25519PublicKey, h Header, t MessageType, body []byte) []byte {
	text := append(make([]byte, 0, 1+len(body)), byte(t))
	text = append(text, body...)
	out := append(make([]byte, 0, SealedBodyOverhead+len(body)), announced[:sealKeyHintSize]...)
	return k.sealText(out, "message", h.sealContext(), text)
}

// IsSealedToKey reports whether a body is encrypted for this announced key.
func IsSealedToKey(body []byte, announced X25519PublicKey) bool {
	return len(body) >= sealKeyHintSize && string(body[:sealKeyHintSize]) == string(announced[:sealKeyHintSize])
}

// OpenMessage decrypts the message in a TypeSealed envelope and returns it as an envelope. The signature of the
// returned envelope is not valid, because it covers the encrypted message.
func (k SealKey) OpenMessage(e Envelope) (Envelope, error) {
	if len(e.Body) < SealedBodyOverhead {
		return e, fmt.Errorf("sealed message: %w", ErrTruncated)
	}
	text, err := k.openText("message", e.sealContext(), e.Body[sealKeyHintSize:])
	if err != nil {
		return e, err
	}
	t := MessageType(text[0])
	if !t.MustBeSealed() {
		return e, fmt.Errorf("sealed message: a message of type %s must not be sealed", t)
	}
	return e.withOpenedBody(t, text[1:]), nil
}

// MustBeSealed reports whether messages of type t must be encrypted, because they contain data, model parameters or a
// key. Coordinator and agents drop such a message if it is not encrypted.
func (t MessageType) MustBeSealed() bool {
	switch t {
	case TypeInvitation, TypeHelloAnswer, TypeUpdate, TypeHello, TypeMetricsReport, TypeGroupKeyDelivery:
		return true
	default:
		return false
	}
}

// BlobSealer encrypts and decrypts the parts of one blob.
type BlobSealer struct {
	key      SealKey
	blobHash Digest
	aead     cipher.AEAD
}

// BlobSealer returns a BlobSealer for the blob with the given digest.
func (k SealKey) BlobSealer(hash Digest) *BlobSealer {
	return &BlobSealer{k, hash, k.aead("blob", hash[:])}
}

// SealedWholeBlob is the part number of a whole blob that is contained in an announcement. Chunks are numbered from 0.
const SealedWholeBlob = -1

// SealPart appends part k of the blob, encrypted, to dst. The nonces are safe because the digest of the blob determines
// the content of each part.
func (s *BlobSealer) SealPart(dst []byte, k int, part []byte) []byte {
	return s.aead.Seal(dst, partNonce(k), part, nil)
}

// OpenPart decrypts part k of the blob and appends it to dst. With dst = sealed[:0] it decrypts in place, and
// overwrites sealed even if decryption fails.
func (s *BlobSealer) OpenPart(dst []byte, k int, sealed []byte) ([]byte, error) {
	part, err := s.aead.Open(dst, partNonce(k), sealed, nil)
	if err != nil {
		return nil, ErrSealDoesNotOpen
	}
	return part, nil
}

// AppendSealedChunk is like AppendChunkMessage, but encrypts chunk k.
func (s *BlobSealer) AppendSealedChunk(dst []byte, k int, payload []byte) []byte {
	return s.SealPart(appendChunkHeader(dst, s.blobHash, k, len(payload)+SealOverhead), k, payload)
}

// SealManifest returns the encrypted manifest of the blob. A blob may have several manifests with different schemas.
func (s *BlobSealer) SealManifest(manifest []byte) []byte {
	return s.key.sealText(nil, "manifest", s.blobHash[:], manifest)
}

// OpenManifest decrypts the blob's manifest.
func (s *BlobSealer) OpenManifest(sealed []byte) ([]byte, error) {
	return s.key.openText("manifest", s.blobHash[:], sealed)
}

func partNonce(k int) []byte {
	n := zeroNonce
	binary.LittleEndian.PutUint32(n[:], uint32(k))
	return n[:]
}

// GroupKeyDelivery is the encrypted message that delivers the group key, which decrypts tasks and models, to an agent.
type GroupKeyDelivery struct{ Key SealKey }

// Body returns the encoded message.
func (m *GroupKeyDelivery) Body() []byte { return m.Key[:] }

// DecodeGroupKeyDelivery decodes the body of a TypeGroupKeyDelivery message.
func DecodeGroupKeyDelivery(body []byte) (GroupKeyDelivery, error) {
	r := reader{unread: body}
	m := GroupKeyDelivery{}
	copy(m.Key[:], r.takeBytes(len(m.Key)))
	return m, r.finish("group key")
}
