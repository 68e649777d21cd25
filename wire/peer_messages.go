package wire

import (
	"bytes"
	"fmt"
)

// The messages between neighbours. They carry no signature: a neighbour's key comes in the coordinator's signed
// invitation, and what is sealed with it proves that the sender or a neighbour of its has sent it. Behind the seal
// stand, where the invitation has them, the proofs that it was the sender, one for each neighbour that the message is
// to. The head of a message is the associated data of its seal.

// PeerMessageType tells what a message between neighbours is.
type PeerMessageType uint8

// The messages between neighbours.
const (
	PeerGreeting     PeerMessageType = iota + 1 // the sender's key, wrapped for each neighbour
	PeerSnapshot                                // a part of the sender's parameters at one step
	PeerAsk                                     // a snapshot is missing
	PeerFinish                                  // how far the sender's end of an edge went
	PeerBeacon                                  // the sender is there: to its cell, outside of any round
	PeerSignedBeacon                            // the same, with a proof that it is the sender's
	lastPeer         = PeerSignedBeacon
)

const (
	peerMagic = "FEDX"
	// MaxNeighbors bounds the edges of one agent.
	MaxNeighbors = 128
	// WrappedKey is the length of a sender's key sealed for a neighbour, in bytes.
	WrappedKey = 32 + PeerSeal
	// PeerSeal is what a seal adds to its text, in bytes.
	PeerSeal = 16
	// PeerProof is the length of a proof, in bytes.
	PeerProof = 16
	// MaxSnapshotPart bounds the parameters in one message, in bytes: 60 KiB less the longest head.
	MaxSnapshotPart = 48 << 10
)

// PeerMessageHeader begins every message between neighbours.
type PeerMessageHeader struct {
	Type  PeerMessageType
	Run   RunID
	Round RoundID
	From  AgentID
	Boot  Epoch
}

// PeerAddress is a neighbour, and the start of its program that is meant; 0 if not known.
type PeerAddress struct {
	ID   AgentID
	Boot Epoch
}

// KeyGreeting gives the neighbours the key of what the sender seals in this round.
type KeyGreeting struct {
	Salt [16]byte
	Keys []GreetingKey
}

// GreetingKey is the sender's key for one neighbour.
type GreetingKey struct {
	To               PeerAddress
	HoldsNeighborKey bool // the sender holds this neighbour's key
	Wrapped          [WrappedKey]byte
}

// SnapshotPartHead is the head of a part of a snapshot. The part itself follows it.
type SnapshotPartHead struct {
	Step                 uint64
	PartIndex, PartCount uint16
	Receivers            []SnapshotReceiver
}

// SnapshotReceiver says which q the snapshot is on the edge to a neighbour.
type SnapshotReceiver struct {
	PeerAddress
	Seq uint64
}

// PeerControl is an ask or a finish. Count makes each seal of the sender
// another one. Last and Applied stay 0, and Drained false, in an ask.
type PeerControl struct {
	To          PeerAddress
	SealCounter uint64
	SnapshotSeq uint64 // of the snapshot that is missing; of the last that was issued
	AppliedSeq  uint64
	Drained     bool
}

func (w *writer) peerHead(h PeerMessageHeader) {
	w.b = append(w.b, peerMagic...)
	w.u8(Version)
	w.u8(uint8(h.Type))
	w.u64(uint64(h.Run))
	w.u64(uint64(h.Round))
	w.u64(uint64(h.Boot))
	w.str(string(h.From))
}

func (w *writer) peerAddress(a PeerAddress) {
	w.u64(uint64(a.Boot))
	w.str(string(a.ID))
}

func (r *reader) peerAddress() PeerAddress {
	a := PeerAddress{Boot: Epoch(r.u64()), ID: AgentID(r.str("neighbour", MaxAgentID))}
	if r.err == nil {
		if err := a.ID.ValidateAgent(); err != nil {
			r.fail(err)
		}
	}
	return a
}

// DecodePeerMessageHeader reads the head of a message between neighbours; the rest is for the decoder of its type.
func DecodePeerMessageHeader(p []byte) (PeerMessageHeader, []byte, error) {
	r := reader{b: p}
	if m := r.takeBytes(len(peerMagic)); m != nil && !bytes.Equal(m, []byte(peerMagic)) {
		r.fail(ErrMalformed)
	}
	if v := r.u8(); r.err == nil && v != Version {
		r.fail(&VersionError{MessageVersion: v})
	}
	h := PeerMessageHeader{Type: PeerMessageType(r.enum("type", uint8(lastPeer))), Run: RunID(r.u64()),
		Round: RoundID(r.u64()),
		Boot:  Epoch(r.u64())}
	h.From = AgentID(r.str("sender", MaxAgentID))
	if r.err == nil {
		if err := h.From.ValidateAgent(); err != nil {
			r.fail(err)
		}
	}
	if r.err != nil {
		return PeerMessageHeader{}, nil, fmt.Errorf("message between neighbours: %w", r.err)
	}
	return h, r.b, nil
}

// AppendGreeting appends a greeting's message to dst.
func AppendGreeting(dst []byte, h PeerMessageHeader, g *KeyGreeting) []byte {
	w := writer{dst}
	w.peerHead(h)
	w.b = append(w.b, g.Salt[:]...)
	w.u32(uint32(len(g.Keys)))
	for i := range g.Keys {
		k := &g.Keys[i]
		w.peerAddress(k.To)
		w.bool(k.HoldsNeighborKey)
		w.b = append(w.b, k.Wrapped[:]...)
	}
	return w.b
}

// DecodeGreeting reads what follows the head of a greeting.
func DecodeGreeting(p []byte) (KeyGreeting, error) {
	r := reader{b: p}
	var g KeyGreeting
	copy(g.Salt[:], r.takeBytes(len(g.Salt)))
	for range r.listLength("keys", MaxNeighbors, 11+WrappedKey) {
		k := GreetingKey{To: r.peerAddress(), HoldsNeighborKey: r.bool("holds")}
		copy(k.Wrapped[:], r.takeBytes(WrappedKey))
		g.Keys = append(g.Keys, k)
	}
	return g, r.finish("greeting")
}

// AppendSnapshotPartHead appends the head of a snapshot's part to dst: all that its seal covers but does not hide.
func AppendSnapshotPartHead(dst []byte, h PeerMessageHeader, s *SnapshotPartHead) []byte {
	w := writer{dst}
	w.peerHead(h)
	w.u64(s.Step)
	w.u16(s.PartIndex)
	w.u16(s.PartCount)
	w.u32(uint32(len(s.Receivers)))
	for _, to := range s.Receivers {
		w.peerAddress(to.PeerAddress)
		w.u64(to.Seq)
	}
	return w.b
}

// DecodeSnapshotPart reads what follows the head of a snapshot's part, and returns the part as it came, with its
// proofs.
func DecodeSnapshotPart(p []byte) (SnapshotPartHead, []byte, error) {
	r := reader{b: p}
	s := SnapshotPartHead{Step: r.u64(), PartIndex: r.u16(), PartCount: r.u16()}
	if r.err == nil && s.PartIndex >= s.PartCount {
		r.failf("part %d of %d", s.PartIndex, s.PartCount)
	}
	for range r.listLength("neighbours", MaxNeighbors, 19) {
		s.Receivers = append(s.Receivers, SnapshotReceiver{r.peerAddress(), r.u64()})
	}
	if most := MaxSnapshotPart + PeerSeal + PeerProof*len(s.Receivers); r.err == nil && len(r.b) > most {
		r.failf("a part of %d bytes, more than %d", len(r.b), most)
	}
	if r.err != nil {
		return SnapshotPartHead{}, nil, fmt.Errorf("snapshot: %w", r.err)
	}
	return s, r.b, nil
}

// AppendControl appends an ask or a finish to dst: all that its seal covers.
func AppendControl(dst []byte, h PeerMessageHeader, c *PeerControl) []byte {
	w := writer{dst}
	w.peerHead(h)
	w.peerAddress(c.To)
	w.u64(c.SealCounter)
	w.u64(c.SnapshotSeq)
	w.u64(c.AppliedSeq)
	w.bool(c.Drained)
	return w.b
}

// DecodeControl reads what follows the head of an ask or a finish, and returns the seal and the proof.
func DecodeControl(p []byte) (PeerControl, []byte, error) {
	r := reader{b: p}
	c := PeerControl{To: r.peerAddress(), SealCounter: r.u64(), SnapshotSeq: r.u64(), AppliedSeq: r.u64(),
		Drained: r.bool("drained")}
	if r.err == nil && len(r.b) > PeerSeal+PeerProof {
		r.failf("%d bytes after the proof", len(r.b)-PeerSeal-PeerProof)
	}
	if r.err != nil {
		return PeerControl{}, nil, fmt.Errorf("message between neighbours: %w", r.err)
	}
	return c, r.b, nil
}
