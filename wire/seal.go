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

// A seal is opened by its receiver only, and not by the broker: see docs/PROTOCOL.md, section 15. Nothing here
// draws random numbers: the same bytes under the same key give the same sealed bytes, and other bytes never meet the
// same key and nonce, since both come from a MAC of the bytes, or from their digest.

// SealOverhead is by how much sealed bytes are longer.
const SealOverhead = chacha20poly1305.Overhead

// ErrSealDoesNotOpen reports bytes that do not open: they were sealed with another key, or changed.
var ErrSealDoesNotOpen = errors.New("the seal does not open")

// SealSecret is what a coordinator seals with for a while.
type SealSecret [32]byte

// x25519PrivateKey is the key whose public part is announced.
func (s SealSecret) x25519PrivateKey() (*ecdh.PrivateKey, error) {
	b, err := hkdf.Key(sha256.New, s[:], nil, "fl/v1/seals", 32)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(b)
}

// PublicKey returns the key to be announced.
func (s SealSecret) PublicKey() (X25519PublicKey, error) {
	k, err := s.x25519PrivateKey()
	if err != nil {
		return X25519PublicKey{}, err
	}
	return X25519PublicKey(k.PublicKey().Bytes()), nil
}

// GroupSealKey returns the key under which blobs are sealed for all agents.
func (s SealSecret) GroupSealKey() (SealKey, error) {
	k, err := hkdf.Key(sha256.New, s[:], nil, "fl/v1/group", len(SealKey{}))
	return SealKey(k), err
}

// AgentSealKeys returns the keys that a coordinator shares with one agent. The error says that the agent's key has no
// X25519 form.
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

// AgentSealKeys is what a coordinator and one agent share while a key is announced.
type AgentSealKeys struct {
	FromAgentKey SealKey // of what the agent says
	ToAgentKey   SealKey // of what it is told
}

// NewAgentSealKeys returns the keys that an agent shares with the coordinator that has announced a key.
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

// SealKey seals messages or blobs.
type SealKey [32]byte

// ID tells one group key from another. It is never 0, and tells nothing of the key.
func (k SealKey) ID() uint64 {
	sum := k.mac("id")
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// mac is the MAC of what is said for one use.
func (k SealKey) mac(use string, said ...[]byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(use))
	h.Write([]byte{0})
	for _, p := range said {
		h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// aead is the cipher of one use. Each of its nonces seals one text.
func (k SealKey) aead(use string, said []byte) cipher.AEAD {
	key := k.mac(use, said)
	a, err := chacha20poly1305.New(key[:])
	if err != nil {
		panic("wire: " + err.Error()) // of the key's length
	}
	return a
}

// sealText appends text to dst, sealed for one use and bound to a place: a salt, and the seal. The salt is a MAC of
// place and text, so no two texts meet one key.
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

// The body of a TypeSealed envelope: the first bytes of the announced key, a salt, and the seal of type and body.
const (
	sealKeyHintSize = 8
	sealSaltSize    = 16
	// SealedBodyOverhead is by how much a sealed body is longer than the body inside.
	SealedBodyOverhead = sealKeyHintSize + sealSaltSize + 1 + SealOverhead
)

// sealContext is what a sealed message is bound to: all of the header but type, length and hash of the body.
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

// SealMessage returns the body of a TypeSealed envelope with that header, which holds a body of type t.
func (k SealKey) SealMessage(announced X25519PublicKey, h Header, t MessageType, body []byte) []byte {
	text := append(make([]byte, 0, 1+len(body)), byte(t))
	text = append(text, body...)
	out := append(make([]byte, 0, SealedBodyOverhead+len(body)), announced[:sealKeyHintSize]...)
	return k.sealText(out, "message", h.sealContext(), text)
}

// IsSealedToKey reports whether a sealed body names this announced key.
func IsSealedToKey(body []byte, announced X25519PublicKey) bool {
	return len(body) >= sealKeyHintSize && string(body[:sealKeyHintSize]) == string(announced[:sealKeyHintSize])
}

// OpenMessage returns the message that is sealed in a TypeSealed envelope. Its bytes have the form of an envelope;
// their signature is that of the sealed one, and does not fit.
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
		return e, fmt.Errorf("sealed message: a %s is never sealed", t)
	}
	return e.withOpenedBody(t, text[1:]), nil
}

// MustBeSealed reports whether messages of type t must be sealed: they contain numbers of data or of models, or a key.
// Coordinator and agents drop such a message if it is not sealed.
func (t MessageType) MustBeSealed() bool {
	switch t {
	case TypeInvitation, TypeHelloAnswer, TypeUpdate, TypeHello, TypeMetricsReport, TypeGroupKeyDelivery:
		return true
	default:
		return false
	}
}

// BlobSealer seals the parts of one blob.
type BlobSealer struct {
	key      SealKey
	blobHash Digest
	aead     cipher.AEAD
}

// BlobSealer returns the seal of the parts of the blob with that digest.
func (k SealKey) BlobSealer(hash Digest) *BlobSealer {
	return &BlobSealer{k, hash, k.aead("blob", hash[:])}
}

// SealedWholeBlob is the number of the whole blob, where that is in the announcement. Chunks have theirs from 0.
const SealedWholeBlob = -1

// SealPart appends part k of the blob to dst, sealed. The digest of the blob says what the part is.
func (s *BlobSealer) SealPart(dst []byte, k int, part []byte) []byte {
	return s.aead.Seal(dst, partNonce(k), part, nil)
}

// OpenPart appends part k of the blob to dst, which may be sealed[:0]: then it takes its place, also if it does not
// open.
func (s *BlobSealer) OpenPart(dst []byte, k int, sealed []byte) ([]byte, error) {
	part, err := s.aead.Open(dst, partNonce(k), sealed, nil)
	if err != nil {
		return nil, ErrSealDoesNotOpen
	}
	return part, nil
}

// AppendChunk is AppendChunk of chunk k, sealed.
func (s *BlobSealer) AppendSealedChunk(dst []byte, k int, payload []byte) []byte {
	return s.SealPart(appendChunkHeader(dst, s.blobHash, k, len(payload)+SealOverhead), k, payload)
}

// SealManifest returns the sealed manifest of the blob. One blob may have several, with other schemas.
func (s *BlobSealer) SealManifest(manifest []byte) []byte {
	return s.key.sealText(nil, "manifest", s.blobHash[:], manifest)
}

// OpenManifest returns the blob's manifest.
func (s *BlobSealer) OpenManifest(sealed []byte) ([]byte, error) {
	return s.key.openText("manifest", s.blobHash[:], sealed)
}

func partNonce(k int) []byte {
	n := zeroNonce
	binary.LittleEndian.PutUint32(n[:], uint32(k))
	return n[:]
}

// GroupKeyDelivery gives an agent the key of the group, in a sealed message.
type GroupKeyDelivery struct{ Key SealKey }

// Body returns the message's encoding.
func (m *GroupKeyDelivery) Body() []byte { return m.Key[:] }

// DecodeGroupKeyDelivery reads the body of a TypeGroupKeyDelivery message.
func DecodeGroupKeyDelivery(body []byte) (GroupKeyDelivery, error) {
	r := reader{unread: body}
	m := GroupKeyDelivery{}
	copy(m.Key[:], r.takeBytes(len(m.Key)))
	return m, r.finish("key")
}
