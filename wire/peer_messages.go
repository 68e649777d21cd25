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
	PeerGreeting        PeerMessageType = iota + 1 // the sender's key, wrapped for each neighbour
	PeerSnapshot                                   // a part of the sender's parameters at one step
	PeerSnapshotRequest                            // a snapshot is missing
	PeerFinish                                     // how far the sender's end of an edge went
	PeerBeacon                                     // the sender is there: to its cell, outside of any round
	PeerSignedBeacon                               // the same, with a proof that it is the sender's
	lastPeer            = PeerSignedBeacon
)

const (
	peerMagic = "FEDX"
	// MaxNeighbors bounds the edges of one agent.
	MaxNeighbors = 128
	// WrappedKeySize is the length of a sender's key sealed for a neighbour, in bytes.
	WrappedKeySize = 32 + PeerSealOverhead
	// PeerSealOverhead is what a seal adds to its text, in bytes.
	PeerSealOverhead = 16
	// PeerProofSize is the length of a proof, in bytes.
	PeerProofSize = 16
	// MaxSnapshotPart bounds the parameters in one message, in bytes: 60 KiB less the longest head.
	MaxSnapshotPart = 48 << 10
)

// PeerMessageHeader begins every message between neighbours.
type PeerMessageHeader struct {
	Type            PeerMessageType
	Run             RunID
	Round           RoundID
	Sender          AgentID
	SenderBootEpoch Epoch
}

// PeerInstance is a neighbour, and the start of its program that is meant; 0 if not known.
type PeerInstance struct {
	ID        AgentID
	BootEpoch Epoch
}

// KeyGreeting gives the neighbours the key of what the sender seals in this round.
type KeyGreeting struct {
	WrappingSalt [16]byte
	WrappedKeys  []WrappedSenderKey
}

// WrappedSenderKey is the sender's key for one neighbour.
type WrappedSenderKey struct {
	Receiver         PeerInstance
	HoldsNeighborKey bool // the sender holds this neighbour's key
	WrappedKey       [WrappedKeySize]byte
}

// SnapshotPartHeader is the head of a part of a snapshot. The part itself follows it.
type SnapshotPartHeader struct {
	Step                 uint64
	PartIndex, PartCount uint16
	Receivers            []SnapshotReceiver
}

// SnapshotReceiver says which q the snapshot is on the edge to a neighbour.
type SnapshotReceiver struct {
	PeerInstance
	SnapshotSeq uint64
}

// PeerControlMessage is an ask or a finish. Count makes each seal of the sender
// another one. LastSeq and AppliedFlowSeq stay 0, and IsEdgeDrained false, in an ask.
type PeerControlMessage struct {
	Receiver       PeerInstance
	SealCounter    uint64
	SnapshotSeq    uint64 // of the snapshot that is missing; of the last that was issued
	AppliedFlowSeq uint64
	IsEdgeDrained  bool
}

func (w *writer) peerMessageHeader(h PeerMessageHeader) {
	w.encoded = append(w.encoded, peerMagic...)
	w.u8(ProtocolVersion)
	w.u8(uint8(h.Type))
	w.u64(uint64(h.Run))
	w.u64(uint64(h.Round))
	w.u64(uint64(h.SenderBootEpoch))
	w.str(string(h.Sender))
}

func (w *writer) peerInstance(a PeerInstance) {
	w.u64(uint64(a.BootEpoch))
	w.str(string(a.ID))
}

func (r *reader) peerInstance() PeerInstance {
	a := PeerInstance{BootEpoch: Epoch(r.u64()), ID: AgentID(r.str("neighbour", MaxAgentID))}
	if r.err == nil {
		if err := a.ID.ValidateNonCoordinator(); err != nil {
			r.fail(err)
		}
	}
	return a
}

// DecodePeerMessageHeader reads the head of a message between neighbours; the rest is for the decoder of its type.
func DecodePeerMessageHeader(p []byte) (PeerMessageHeader, []byte, error) {
	r := reader{unread: p}
	if m := r.takeBytes(len(peerMagic)); m != nil && !bytes.Equal(m, []byte(peerMagic)) {
		r.fail(ErrMalformed)
	}
	if v := r.u8(); r.err == nil && v != ProtocolVersion {
		r.fail(&ProtocolVersionError{MessageVersion: v})
	}
	h := PeerMessageHeader{Type: PeerMessageType(r.enum("type", uint8(lastPeer))), Run: RunID(r.u64()),
		Round:           RoundID(r.u64()),
		SenderBootEpoch: Epoch(r.u64())}
	h.Sender = AgentID(r.str("sender", MaxAgentID))
	if r.err == nil {
		if err := h.Sender.ValidateNonCoordinator(); err != nil {
			r.fail(err)
		}
	}
	if r.err != nil {
		return PeerMessageHeader{}, nil, fmt.Errorf("message between neighbours: %w", r.err)
	}
	return h, r.unread, nil
}

// AppendKeyGreeting appends a greeting's message to dst.
func AppendKeyGreeting(dst []byte, h PeerMessageHeader, g *KeyGreeting) []byte {
	w := writer{dst}
	w.peerMessageHeader(h)
	w.encoded = append(w.encoded, g.WrappingSalt[:]...)
	w.u32(uint32(len(g.WrappedKeys)))
	for i := range g.WrappedKeys {
		k := &g.WrappedKeys[i]
		w.peerInstance(k.Receiver)
		w.bool(k.HoldsNeighborKey)
		w.encoded = append(w.encoded, k.WrappedKey[:]...)
	}
	return w.encoded
}

// DecodeKeyGreeting reads what follows the head of a greeting.
func DecodeKeyGreeting(p []byte) (KeyGreeting, error) {
	r := reader{unread: p}
	var g KeyGreeting
	copy(g.WrappingSalt[:], r.takeBytes(len(g.WrappingSalt)))
	for range r.listLength("keys", MaxNeighbors, 11+WrappedKeySize) {
		k := WrappedSenderKey{Receiver: r.peerInstance(), HoldsNeighborKey: r.bool("holds")}
		copy(k.WrappedKey[:], r.takeBytes(WrappedKeySize))
		g.WrappedKeys = append(g.WrappedKeys, k)
	}
	return g, r.finish("greeting")
}

// AppendSnapshotPartHeader appends the head of a snapshot's part to dst: all that its seal covers but does not hide.
func AppendSnapshotPartHeader(dst []byte, h PeerMessageHeader, s *SnapshotPartHeader) []byte {
	w := writer{dst}
	w.peerMessageHeader(h)
	w.u64(s.Step)
	w.u16(s.PartIndex)
	w.u16(s.PartCount)
	w.u32(uint32(len(s.Receivers)))
	for _, to := range s.Receivers {
		w.peerInstance(to.PeerInstance)
		w.u64(to.SnapshotSeq)
	}
	return w.encoded
}

// DecodeSnapshotPart reads what follows the head of a snapshot's part, and returns the part as it came, with its
// proofs.
func DecodeSnapshotPart(p []byte) (SnapshotPartHeader, []byte, error) {
	r := reader{unread: p}
	s := SnapshotPartHeader{Step: r.u64(), PartIndex: r.u16(), PartCount: r.u16()}
	if r.err == nil && s.PartIndex >= s.PartCount {
		r.failf("part %d of %d", s.PartIndex, s.PartCount)
	}
	for range r.listLength("neighbours", MaxNeighbors, 19) {
		s.Receivers = append(s.Receivers, SnapshotReceiver{r.peerInstance(), r.u64()})
	}
	if most := MaxSnapshotPart + PeerSealOverhead + PeerProofSize*len(s.Receivers); r.err == nil &&
		len(r.unread) > most {
		r.failf("a part of %d bytes, more than %d", len(r.unread), most)
	}
	if r.err != nil {
		return SnapshotPartHeader{}, nil, fmt.Errorf("snapshot: %w", r.err)
	}
	return s, r.unread, nil
}

// AppendPeerControl appends an ask or a finish to dst: all that its seal covers.
func AppendPeerControl(dst []byte, h PeerMessageHeader, c *PeerControlMessage) []byte {
	w := writer{dst}
	w.peerMessageHeader(h)
	w.peerInstance(c.Receiver)
	w.u64(c.SealCounter)
	w.u64(c.SnapshotSeq)
	w.u64(c.AppliedFlowSeq)
	w.bool(c.IsEdgeDrained)
	return w.encoded
}

// DecodePeerControl reads what follows the head of an ask or a finish, and returns the seal and the proof.
func DecodePeerControl(p []byte) (PeerControlMessage, []byte, error) {
	r := reader{unread: p}
	c := PeerControlMessage{Receiver: r.peerInstance(), SealCounter: r.u64(), SnapshotSeq: r.u64(),
		AppliedFlowSeq: r.u64(),
		IsEdgeDrained:  r.bool("drained")}
	if r.err == nil && len(r.unread) > PeerSealOverhead+PeerProofSize {
		r.failf("%d bytes after the proof", len(r.unread)-PeerSealOverhead-PeerProofSize)
	}
	if r.err != nil {
		return PeerControlMessage{}, nil, fmt.Errorf("message between neighbours: %w", r.err)
	}
	return c, r.unread, nil
}
