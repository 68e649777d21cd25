package wire

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// MessageType tells what the body of an envelope is.
type MessageType uint8

// The types of body.
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
	// TypeSealed holds a message of another type, sealed for its receiver.
	TypeSealed
	// TypeGroupKeyDelivery travels sealed only.
	TypeGroupKeyDelivery
	TypeRenewalRequest
	TypeRenewalAnswer
)

var typeNames = [...]string{"", "announcement", "invitation", "standing", "accepted", "refused", "credit",
	"update", "presence", "hello", "joined", "declined", "report", "settled", "rejection", "sealed", "key", "renew",
	"renewed"}

// String returns the type's name, as it stands in the signature's domain.
func (t MessageType) String() string {
	if t == 0 || int(t) >= len(typeNames) {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return typeNames[t]
}

// HeaderSize is the length of an envelope's header, in bytes: what is signed,
// and what an announcement's digest is taken of.
const HeaderSize = 160

const (
	signatureSize = ed25519.SignatureSize
	envelopeMagic = "FEDM"
)

// Errors of ParseEnvelope and Verify.
var (
	ErrMalformed       = errors.New("malformed message")
	ErrProtocolVersion = errors.New("unknown protocol version")
	ErrSignature       = errors.New("bad signature")
)

// Header is the signed head of an envelope.
type Header struct {
	Type       MessageType
	Federation FederationName
	Sender     AgentID
	Epoch      Epoch       // the sender's
	Root       RootVersion // that the sender goes by
	Run        RunID       // 0 where no run is meant
	Round      RoundID
	// Sequence grows with every envelope of one sender in one epoch.
	Sequence uint64
}

// Envelope is a parsed message. Body and the envelope's own bytes are views
// of the slice that was given to ParseEnvelope.
type Envelope struct {
	Header
	Body []byte
	raw  []byte
}

// Layout: magic 4, version 1, type 1, zero 2, federation 32, sender 48,
// epoch 8, run 8, round 8, sequence 8, body length 4, root 4, SHA-256 of the
// body 32 = 160 bytes; signature 64; body.

// SignEnvelope appends to dst the envelope of body under h, signed with key. The
// header must be valid and the body at most MaxBody bytes long: both are the
// caller's own, so SignEnvelope panics otherwise.
func SignEnvelope(dst []byte, h Header, body []byte, key ed25519.PrivateKey) []byte {
	return SignEnvelopeWithScheme(Ed25519{}, dst, h, body, key)
}

// SignEnvelopeWithScheme is SignEnvelope with signatures of another kind.
func SignEnvelopeWithScheme(s SignatureScheme, dst []byte, h Header, body []byte, key ed25519.PrivateKey) []byte {
	if err := h.validate(); err != nil {
		panic("wire: Seal: " + err.Error())
	}
	if len(body) > MaxBody {
		panic(fmt.Sprintf("wire: Seal: %s body of %d bytes is over %d", h.Type, len(body), MaxBody))
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

// ProtocolVersionError is of a message in another version of the protocol. It is an ErrProtocolVersion.
type ProtocolVersionError struct{ MessageVersion uint8 }

func (e *ProtocolVersionError) Error() string {
	return fmt.Sprintf("%v %d: this build speaks %d", ErrProtocolVersion, e.MessageVersion, ProtocolVersion)
}

// UpgradeAdvice says which program is to be updated: ours, or that of the sender.
func (e *ProtocolVersionError) UpgradeAdvice(ours, sender string) string {
	if e.MessageVersion > ProtocolVersion {
		return ours
	}
	return sender
}

// Unwrap returns ErrProtocolVersion.
func (e *ProtocolVersionError) Unwrap() error { return ErrProtocolVersion }

// ParseEnvelope parses an envelope and checks its form, limits and body hash. It does
// not check the signature: that needs the sender's key (Verify).
func ParseEnvelope(p []byte) (Envelope, error) {
	if len(p) < HeaderSize+signatureSize || len(p) > MaxMessage || string(p[:4]) != envelopeMagic {
		return Envelope{}, fmt.Errorf("%w: %d bytes without the form of an envelope", ErrMalformed, len(p))
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
		return Envelope{}, fmt.Errorf("%w: the reserved field is not zero", ErrMalformed)
	}
	if int64(le.Uint32(p[120:])) != int64(len(body)) {
		return Envelope{}, fmt.Errorf("%w: the body has %d bytes, the header says %d", ErrMalformed, len(body),
			le.Uint32(p[120:]))
	}
	if sha256.Sum256(body) != [32]byte(p[128:160]) {
		return Envelope{}, fmt.Errorf("%w: the body does not match its hash", ErrMalformed)
	}
	return Envelope{Header: h, Body: body, raw: p}, nil
}

// Verify checks the signature with the key that the sender is known by.
func (e Envelope) Verify(key ed25519.PublicKey) error { return e.VerifyWithScheme(Ed25519{}, key) }

// VerifyWithScheme is Verify for signatures of another kind.
func (e Envelope) VerifyWithScheme(s SignatureScheme, key ed25519.PublicKey) error {
	if len(e.raw) < HeaderSize+signatureSize ||
		!s.Verify(key, signedEnvelopeBytes(e.Type, e.raw[:HeaderSize]), e.raw[HeaderSize:HeaderSize+signatureSize]) {
		return fmt.Errorf("%w on a message of %s", ErrSignature, e.Sender)
	}
	return nil
}

// Digest returns the SHA-256 of the envelope's header, which binds its body:
// an invitation names the announcement that it belongs to by this digest.
func (e Envelope) Digest() Digest { return sha256.Sum256(e.raw[:HeaderSize]) }

// signedEnvelopeBytes returns what is signed: the domain of the type, then the header.
func signedEnvelopeBytes(t MessageType, header []byte) []byte {
	b := make([]byte, 0, 32+HeaderSize)
	b = append(b, "fedmesh/v2/"...)
	b = append(b, t.String()...)
	b = append(b, 0)
	return append(b, header...)
}

// withOpenedBody returns the envelope with the body that was sealed in it.
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

// Bytes returns the whole envelope, to be read only.
func (e Envelope) Bytes() []byte { return e.raw }

func (h Header) validate() error {
	if h.Type == 0 || int(h.Type) >= len(typeNames) {
		return fmt.Errorf("unknown message type %d", uint8(h.Type))
	}
	if h.Root == 0 {
		return errors.New("the version of the root document is 0, they count from 1")
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

// readPaddedName reads a name that zeros fill up; a byte after the first zero is an error.
func readPaddedName(p []byte) (string, error) {
	n := 0
	for n < len(p) && p[n] != 0 {
		n++
	}
	for _, c := range p[n:] {
		if c != 0 {
			return "", errors.New("a name goes on after its end")
		}
	}
	return string(p[:n]), nil
}
