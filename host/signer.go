package host

import (
	"crypto/ed25519"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/wire"
)

// Signer seals what a program says, with growing sequence numbers. It may be used from several goroutines, once its
// fields are set.
type Signer struct {
	Federation wire.Federation
	Sender     wire.AgentID
	Epoch      wire.Epoch
	Key        ed25519.PrivateKey
	Signatures wire.Signatures

	sequence atomic.Uint64
	root     atomic.Uint32 // 0 = wire.FirstRoot
}

// SetRoot has messages say by which version of the root document they are.
func (s *Signer) SetRoot(v wire.Root) { s.root.Store(uint32(v)) }

// Root is that version.
func (s *Signer) Root() wire.Root { return max(wire.Root(s.root.Load()), wire.FirstRoot) }

// Seal returns the envelope of a body.
func (s *Signer) Seal(t wire.Type, run wire.RunID, round wire.RoundID, body []byte) []byte {
	return wire.SealBy(s.Signatures, nil, s.header(t, run, round), body, s.Key)
}

// SealWith is Seal with another key than the sender's, of a message that belongs to no round.
func (s *Signer) SealWith(key ed25519.PrivateKey, t wire.Type, body []byte) []byte {
	return wire.SealBy(s.Signatures, nil, s.header(t, 0, 0), body, key)
}

// header is that of the next envelope.
func (s *Signer) header(t wire.Type, run wire.RunID, round wire.RoundID) wire.Header {
	return wire.Header{
		Type: t, Federation: s.Federation, Sender: s.Sender, Epoch: s.Epoch, Run: run, Round: round,
		Sequence: s.sequence.Add(1), Root: s.Root(),
	}
}

// Reader is who opens what is sealed for it.
type Reader struct {
	Announced wire.PeerKey // while this is the coordinator's key
	Key       wire.SealKey
}

// SealFor returns the envelope of a body, which only its reader can open if bodies of the type are sealed; nil reads
// what is open.
func (s *Signer) SealFor(r *Reader, t wire.Type, run wire.RunID, round wire.RoundID, body []byte) []byte {
	if r == nil || !t.Sealed() {
		return s.Seal(t, run, round, body)
	}
	h := s.header(wire.TypeSealed, run, round)
	return wire.SealBy(s.Signatures, nil, h, r.Key.Message(r.Announced, h, t, body), s.Key)
}

// Overtake has the sequence numbers go on above that one.
func (s *Signer) Overtake(sequence uint64) {
	if now := s.sequence.Load(); now < sequence {
		s.sequence.Add(sequence - now)
	}
}
