package host

import (
	"crypto/ed25519"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/wire"
)

// Signer signs outgoing messages and assigns increasing sequence numbers. It is safe for concurrent use after its
// fields are set.
type Signer struct {
	Federation      wire.FederationName
	Sender          wire.AgentID
	Epoch           wire.Epoch
	Key             ed25519.PrivateKey
	SignatureScheme wire.SignatureScheme

	sequence    atomic.Uint64
	rootVersion atomic.Uint32 // version of the root document; 0 means wire.FirstRootVersion
}

// SetRootVersion sets the version of the root document (list of trusted keys) that outgoing messages name.
func (s *Signer) SetRootVersion(v wire.RootVersion) { s.rootVersion.Store(uint32(v)) }

// RootVersion returns the version of the root document (list of trusted keys) that outgoing messages name.
func (s *Signer) RootVersion() wire.RootVersion {
	return max(wire.RootVersion(s.rootVersion.Load()), wire.FirstRootVersion)
}

// SignedEnvelope returns a signed envelope with the given body.
func (s *Signer) SignedEnvelope(t wire.MessageType, run wire.RunID, round wire.RoundID, body []byte) []byte {
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, s.nextHeader(t, run, round), body, s.Key)
}

// SignedEnvelopeWithKey is like SignedEnvelope, but signs with key and sets no run or round.
func (s *Signer) SignedEnvelopeWithKey(key ed25519.PrivateKey, t wire.MessageType, body []byte) []byte {
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, s.nextHeader(t, 0, 0), body, key)
}

// nextHeader returns an envelope header with the next sequence number.
func (s *Signer) nextHeader(t wire.MessageType, run wire.RunID, round wire.RoundID) wire.Header {
	return wire.Header{
		Type: t, Federation: s.Federation, Sender: s.Sender, Epoch: s.Epoch, Run: run, Round: round,
		Sequence: s.sequence.Add(1), Root: s.RootVersion(),
	}
}

// SealRecipient contains the keys for encrypting a message to one recipient.
type SealRecipient struct {
	AnnouncedKey wire.X25519PublicKey // public key of the coordinator from which the field Key was derived
	Key          wire.SealKey
}

// SealedEnvelope returns a signed envelope with the given body. If messages of type t must be encrypted, it encrypts
// the body for r, which may be nil for other types.
func (s *Signer) SealedEnvelope(r *SealRecipient, t wire.MessageType, run wire.RunID, round wire.RoundID,
	body []byte) []byte {
	if !t.MustBeSealed() {
		return s.SignedEnvelope(t, run, round, body)
	}
	h := s.nextHeader(wire.TypeSealed, run, round)
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, h, r.Key.SealMessage(r.AnnouncedKey, h, t, body), s.Key)
}

// SkipSequencePast raises the sequence number if necessary, so that the next message has a number greater than
// sequence.
func (s *Signer) SkipSequencePast(sequence uint64) {
	if now := s.sequence.Load(); now < sequence {
		s.sequence.Add(sequence - now)
	}
}
