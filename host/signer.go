package host

import (
	"crypto/ed25519"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/wire"
)

// Signer seals what a program says, with growing sequence numbers. It may be used from several goroutines, once its
// fields are set.
type Signer struct {
	Federation      wire.FederationName
	Sender          wire.AgentID
	Epoch           wire.Epoch
	Key             ed25519.PrivateKey
	SignatureScheme wire.SignatureScheme

	sequence    atomic.Uint64
	rootVersion atomic.Uint32 // 0 = wire.FirstRootVersion
}

// SetRootVersion has messages say by which version of the root document they are.
func (s *Signer) SetRootVersion(v wire.RootVersion) { s.rootVersion.Store(uint32(v)) }

// RootVersion is that version.
func (s *Signer) RootVersion() wire.RootVersion {
	return max(wire.RootVersion(s.rootVersion.Load()), wire.FirstRootVersion)
}

// SignedEnvelope returns the envelope of a body.
func (s *Signer) SignedEnvelope(t wire.MessageType, run wire.RunID, round wire.RoundID, body []byte) []byte {
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, s.nextHeader(t, run, round), body, s.Key)
}

// SignedEnvelopeWithKey is Seal with another key than the sender's, of a message that belongs to no round.
func (s *Signer) SignedEnvelopeWithKey(key ed25519.PrivateKey, t wire.MessageType, body []byte) []byte {
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, s.nextHeader(t, 0, 0), body, key)
}

// nextHeader is that of the next envelope.
func (s *Signer) nextHeader(t wire.MessageType, run wire.RunID, round wire.RoundID) wire.Header {
	return wire.Header{
		Type: t, Federation: s.Federation, Sender: s.Sender, Epoch: s.Epoch, Run: run, Round: round,
		Sequence: s.sequence.Add(1), Root: s.RootVersion(),
	}
}

// SealRecipient is who opens what is sealed for it.
type SealRecipient struct {
	AnnouncedKey wire.X25519PublicKey // while this is the coordinator's key
	Key          wire.SealKey
}

// SealedEnvelope returns the envelope of a body. It seals the body for r if wire.Type.Sealed reports true for t. Only
// for other types may r be nil.
func (s *Signer) SealedEnvelope(r *SealRecipient, t wire.MessageType, run wire.RunID, round wire.RoundID,
	body []byte) []byte {
	if !t.MustBeSealed() {
		return s.SignedEnvelope(t, run, round, body)
	}
	h := s.nextHeader(wire.TypeSealed, run, round)
	return wire.SignEnvelopeWithScheme(s.SignatureScheme, nil, h, r.Key.SealMessage(r.AnnouncedKey, h, t, body), s.Key)
}

// SkipSequencePast has the sequence numbers go on above that one.
func (s *Signer) SkipSequencePast(sequence uint64) {
	if now := s.sequence.Load(); now < sequence {
		s.sequence.Add(sequence - now)
	}
}
