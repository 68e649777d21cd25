package wire

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// MessageType is the type of an envelope's body.
type MessageType uint8

// The message types.
const (
	TypeAnnouncement MessageType = iota + 1
	TypeInvitation
	TypeHelloAnswer
	TypeUpdateAccepted
	TypeUpdateRefused
	TypeChunkCredit
	TypeUpdate
	TypePresence
	TypeHello
	TypeInvitationAccepted
	TypeInvitationDeclined
	TypeMetricsReport
	TypeUpdateFateAnswer
	TypeMessageRejection
	// TypeSealed contains a message of another type, encrypted (sealed) for the receiver.
	TypeSealed
	// TypeGroupKeyDelivery is sent only inside a TypeSealed message.
	TypeGroupKeyDelivery
	TypeRenewalRequest
	TypeRenewalAnswer
)

var typeNames = [...]string{"", "announcement", "invitation", "standing", "accepted", "refused", "credit",
	"update", "presence", "hello", "joined", "declined", "report", "settled", "rejection", "sealed", "key", "renew",
	"renewed"}

// String returns the name of the message type. The signature of an envelope covers this name.
func (t MessageType) String() string {
	if t == 0 || int(t) >= len(typeNames) {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return typeNames[t]
}

// HeaderSize is the length in bytes of an envelope's header. The signature and the digest of an envelope cover the
// header.
const HeaderSize = 160

const (
	signatureSize = ed25519.SignatureSize
	envelopeMagic = "FEDM"
)

// Errors of ParseEnvelope and Verify.
var (
	ErrMalformed       = errors.New("malformed message")
	ErrProtocolVersion = errors.New("unsupported protocol version")
	ErrSignature       = errors.New("invalid signature")
)

// Header is the signed header of an envelope.
type Header struct {
	Type       MessageType
	Federation FederationName
	Sender     AgentID
	// epoch of the coordinator, or boot epoch of the agent; a receiver ignores messages with an older epoch
	Epoch Epoch
	Root  RootVersion // version of the root document that the sender has installed
	Run   RunID       // run to which the message belongs; 0 means none
	Round RoundID
	// Sequence is a number that increases with every envelope that a sender signs within an epoch.
	Sequence uint64
}

// Envelope is a parsed message. Body and the raw bytes are views of the slice passed to ParseEnvelope.
type Envelope struct {
	Header
	Body []byte
	raw  []byte
}

// Layout of an envelope, with the size of each field in bytes: magic 4, version 1, type 1, zero 2, federation 32,
// sender 48, epoch 8, run 8, round 8, sequence 8, body length 4, root document version 4, SHA-256 of the body 32, which
// together are the header of 160 bytes; then signature 64 and the body.

// SignEnvelope appends an envelope with header h and the given body to dst, signed with key. It panics if the header is
// invalid or the body is longer than MaxBody, because both come from the caller.
func SignEnvelope(dst []byte, h Header, body []byte, key ed25519.PrivateKey) []byte {
	return SignEnvelopeWithScheme(Ed25519{}, dst, h, body, key)
}

// SignEnvelopeWithScheme is like SignEnvelope with another signature scheme.
func SignEnvelopeWithScheme(s SignatureScheme, dst []byte, h Header, body []byte, key ed25519.PrivateKey) []byte {
	if err := h.validate(); err != nil {
		panic("wire: SignEnvelope: " + err.Error())
	}
	if len(body) > MaxBody {
		panic(fmt.Sprintf("wire: SignEnvelope: %s body of %d bytes exceeds the limit of "+
			"%d", h.Type, len(body), MaxBody))
	}
	start := len(dst)
	w := writer{dst}
	w.encoded = append(w.encoded, envelopeMagic...)
	w.u8(ProtocolVersion)
	w.u8(uint8(h.Type))
	w.u16(0)
	w.encoded = appendPaddedName(w.encoded, string(h.Federation), MaxFederation)
	w.encoded = appendPaddedName(w.encoded, string(h.Sender), MaxAgentID)
	w.u64(uint64(h.Epoch))
	w.u64(uint64(h.Run))
	w.u64(uint64(h.Round))
	w.u64(h.Sequence)
	w.u32(uint32(len(body)))
	w.u32(uint32(h.Root))
	w.digest(sha256.Sum256(body))
	w.encoded = append(w.encoded, s.Sign(key, signedEnvelopeBytes(h.Type, w.encoded[start:]))...)
	return append(w.encoded, body...)
}

// ProtocolVersionError is the error for a message with an unsupported protocol version. It wraps ErrProtocolVersion.
type ProtocolVersionError struct{ MessageVersion uint8 }

func (e *ProtocolVersionError) Error() string {
	return fmt.Sprintf("%v %d: this program supports version %d", ErrProtocolVersion, e.MessageVersion, ProtocolVersion)
}

// UpgradeAdvice returns the text ours if this program must be updated, and the text sender if the program of the
// message's sender must be updated.
func (e *ProtocolVersionError) UpgradeAdvice(ours, sender string) string {
	if e.MessageVersion > ProtocolVersion {
		return ours
	}
	return sender
}

// Unwrap returns ErrProtocolVersion.
func (e *ProtocolVersionError) Unwrap() error { return ErrProtocolVersion }

// ParseEnvelope parses an envelope and checks its form, limits and body hash. It does not verify the signature; see
// Verify.
func ParseEnvelope(p []byte) (Envelope, error) {
	if len(p) < HeaderSize+signatureSize || len(p) > MaxMessage || string(p[:4]) != envelopeMagic {
		return Envelope{}, fmt.Errorf("%w: %d bytes are not a valid envelope", ErrMalformed, len(p))
	}
	if p[4] != ProtocolVersion {
		return Envelope{}, &ProtocolVersionError{MessageVersion: p[4]}
	}
	federation, err1 := readPaddedName(p[8:40])
	sender, err2 := readPaddedName(p[40:88])
	le := binary.LittleEndian
	h := Header{
		Type:       MessageType(p[5]),
		Federation: FederationName(federation),
		Sender:     AgentID(sender),
		Epoch:      Epoch(le.Uint64(p[88:])),
		Run:        RunID(le.Uint64(p[96:])),
		Round:      RoundID(le.Uint64(p[104:])),
		Sequence:   le.Uint64(p[112:]),
		Root:       RootVersion(le.Uint32(p[124:])),
	}
	body := p[HeaderSize+signatureSize:]
	if err := cmp.Or(err1, err2, h.validate()); err != nil {
		return Envelope{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if le.Uint16(p[6:]) != 0 {
		return Envelope{}, fmt.Errorf("%w: reserved field is not zero", ErrMalformed)
	}
	if int64(le.Uint32(p[120:])) != int64(len(body)) {
		return Envelope{}, fmt.Errorf("%w: body has %d bytes, but the header specifies %d", ErrMalformed, len(body),
			le.Uint32(p[120:]))
	}
	if sha256.Sum256(body) != [32]byte(p[128:160]) {
		return Envelope{}, fmt.Errorf("%w: body does not match its hash", ErrMalformed)
	}
	return Envelope{Header: h, Body: body, raw: p}, nil
}

// Verify verifies the signature with the sender's public key.
func (e Envelope) Verify(key ed25519.PublicKey) error { return e.VerifyWithScheme(Ed25519{}, key) }

// VerifyWithScheme is like Verify with another signature scheme.
func (e Envelope) VerifyWithScheme(s SignatureScheme, key ed25519.PublicKey) error {
	if len(e.raw) < HeaderSize+signatureSize ||
		!s.Verify(key, signedEnvelopeBytes(e.Type, e.raw[:HeaderSize]), e.raw[HeaderSize:HeaderSize+signatureSize]) {
		return fmt.Errorf("%w on a message from %s", ErrSignature, e.Sender)
	}
	return nil
}

// Digest returns the SHA-256 of the envelope's header, which includes the body hash. An invitation refers to its
// announcement by this digest.
func (e Envelope) Digest() Digest { return sha256.Sum256(e.raw[:HeaderSize]) }

// signedEnvelopeBytes returns the bytes to be signed: the domain of the type, then the header.
func signedEnvelopeBytes(t MessageType, header []byte) []byte {
	b := make([]byte, 0, 32+HeaderSize)
	b = append(b, "fedmesh/v2/"...)
	b = append(b, t.String()...)
	b = append(b, 0)
	return append(b, header...)
}

// withOpenedBody returns a copy of the envelope with message type t and the decrypted body.
func (e Envelope) withOpenedBody(t MessageType, body []byte) Envelope {
	raw := append(make([]byte, 0, HeaderSize+signatureSize+len(body)), e.raw[:HeaderSize+signatureSize]...)
	raw[5] = byte(t)
	binary.LittleEndian.PutUint32(raw[120:], uint32(len(body)))
	sum := sha256.Sum256(body)
	copy(raw[128:], sum[:])
	e.Type, e.raw = t, append(raw, body...)
	e.Body = e.raw[HeaderSize+signatureSize:]
	return e
}

// Bytes returns the whole encoded envelope. The caller must not modify it.
func (e Envelope) Bytes() []byte { return e.raw }

func (h Header) validate() error {
	if h.Type == 0 || int(h.Type) >= len(typeNames) {
		return fmt.Errorf("unknown message type %d", uint8(h.Type))
	}
	if h.Root == 0 {
		return errors.New("root document version is 0: must be at least 1")
	}
	if err := h.Federation.Validate(); err != nil {
		return err
	}
	return h.Sender.Validate()
}

func appendPaddedName(dst []byte, s string, size int) []byte {
	dst = append(dst, s...)
	return append(dst, make([]byte, size-len(s))...)
}

// readPaddedName decodes a name that is padded with zeros. Non-zero padding is an error.
func readPaddedName(p []byte) (string, error) {
	n := 0
	for n < len(p) && p[n] != 0 {
		n++
	}
	for _, c := range p[n:] {
		if c != 0 {
			return "", errors.New("the padding after a name is not zero")
		}
	}
	return string(p[:n]), nil
}
