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
	return wire.SealBy(s.Signatures, nil, wire.Header{
		Type: t, Federation: s.Federation, Sender: s.Sender, Epoch: s.Epoch, Run: run, Round: round,
		Sequence: s.sequence.Add(1), Root: s.Root(),
	}, body, s.Key)
}

// Overtake has the sequence numbers go on above that one.
func (s *Signer) Overtake(sequence uint64) {
	if now := s.sequence.Load(); now < sequence {
		s.sequence.Add(sequence - now)
	}
}
