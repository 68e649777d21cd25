package wire

import (
	"bytes"
	"fmt"
)

// Messages between neighbours have no signature. They are encrypted (sealed) with a sender's key, which a greeting
// distributes to the sender's neighbours. A message that can be decrypted was therefore sent by the sender or by
// another neighbour of the sender. If the invitation requires proofs, the message also contains, after the encrypted
// text, one proof of the sender for each receiver. The header of a message is authenticated together with the encrypted
// text.

// PeerMessageType is the type of a message between neighbours.
type PeerMessageType uint8

// The types of messages between neighbours.
const (
	PeerGreeting        PeerMessageType = iota + 1 // key of the sender, encrypted for each neighbour
	PeerSnapshot                                   // part of a snapshot of the sender's parameters
	PeerSnapshotRequest                            // request for a missing snapshot
	PeerFinish                                     // end of the sender's block, with the flows that it has applied
	PeerBeacon                                     // announcement of the sender to its cell, independent of rounds
	PeerSignedBeacon                               // beacon with an attestation and a signature of the sender
	lastPeer            = PeerSignedBeacon
)

const (
	peerMagic = "FEDX"
	// MaxNeighbors is the maximum number of neighbours of an agent.
	MaxNeighbors = 128
	// WrappedKeySize is the length, in bytes, of a sender's key that is encrypted for a neighbour.
	WrappedKeySize = 32 + PeerSealOverhead
	// PeerSealOverhead is the number of bytes that sealing adds to a message.
	PeerSealOverhead = 16
	// PeerProofSize is the length of a sender proof in bytes.
	PeerProofSize = 16
	// MaxSnapshotPart is the maximum size in bytes of the parameters in one message: 60 KiB less the longest header.
	MaxSnapshotPart = 48 << 10
)

// PeerMessageHeader is the header of every message between neighbours.
type PeerMessageHeader struct {
	Type            PeerMessageType
	Run             RunID
	Round           RoundID
	Sender          AgentID
	SenderBootEpoch Epoch
}

// PeerInstance identifies a neighbour and one start of its program by the boot epoch. BootEpoch is 0 if it is unknown.
type PeerInstance struct {
	ID        AgentID
	BootEpoch Epoch
}

// KeyGreeting distributes the sender's key of this round to its neighbours.
type KeyGreeting struct {
	WrappingSalt [16]byte
	WrappedKeys  []WrappedSenderKey
}

// WrappedSenderKey is the sender's key, encrypted for one neighbour.
type WrappedSenderKey struct {
	Receiver         PeerInstance
	HoldsNeighborKey bool // whether the sender has already received the key of the neighbour
	WrappedKey       [WrappedKeySize]byte
}

// SnapshotPartHeader is the header that precedes one part of a snapshot.
type SnapshotPartHeader struct {
	Step                 uint64
	PartIndex, PartCount uint16
	Receivers            []SnapshotReceiver
}

// SnapshotReceiver identifies a receiver of a snapshot, and the sequence number q of the snapshot among all snapshots
// sent to this receiver.
type SnapshotReceiver struct {
	PeerInstance
	SnapshotSeq uint64
}

// PeerControlMessage is a PeerSnapshotRequest or a PeerFinish. SealCounter differs in each encrypted control message of
// the sender. In a request, AppliedFlowSeq is 0 and IsEdgeDrained is false.
type PeerControlMessage struct {
	Receiver       PeerInstance
	SealCounter    uint64
	SnapshotSeq    uint64
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

// DecodePeerMessageHeader decodes the header of a message between neighbours. It also returns the remaining bytes,
// which the decoder of the message type must decode.
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

// AppendKeyGreeting appends the encoding of greeting g with header h to dst.
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

// DecodeKeyGreeting decodes a greeting whose header has already been removed.
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

// AppendSnapshotPartHeader appends the headers of a snapshot part to dst. Sealing authenticates these headers but does
// not encrypt them.
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

// DecodeSnapshotPart decodes a snapshot part without its message header. It returns the part, which is still encrypted
// and is followed by its proofs.
func DecodeSnapshotPart(p []byte) (SnapshotPartHeader, []byte, error) {
	r := reader{unread: p}
	s := SnapshotPartHeader{Step: r.u64(), PartIndex: r.u16(), PartCount: r.u16()}
	if r.err == nil && s.PartIndex >= s.PartCount {
		r.failf("invalid part number %d of %d", s.PartIndex, s.PartCount)
	}
	for range r.listLength("neighbours", MaxNeighbors, 19) {
		s.Receivers = append(s.Receivers, SnapshotReceiver{r.peerInstance(), r.u64()})
	}
	if most := MaxSnapshotPart + PeerSealOverhead + PeerProofSize*len(s.Receivers); r.err == nil &&
		len(r.unread) > most {
		r.failf("part has %d bytes, which exceeds the limit of %d", len(r.unread), most)
	}
	if r.err != nil {
		return SnapshotPartHeader{}, nil, fmt.Errorf("snapshot: %w", r.err)
	}
	return s, r.unread, nil
}

// AppendPeerControl appends a control message to dst, without its seal. The seal authenticates the whole message.
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

// DecodePeerControl decodes a control message without its header. It also returns the bytes of the seal and the proof.
func DecodePeerControl(p []byte) (PeerControlMessage, []byte, error) {
	r := reader{unread: p}
	c := PeerControlMessage{Receiver: r.peerInstance(), SealCounter: r.u64(), SnapshotSeq: r.u64(),
		AppliedFlowSeq: r.u64(),
		IsEdgeDrained:  r.bool("drained")}
	if r.err == nil && len(r.unread) > PeerSealOverhead+PeerProofSize {
		r.failf("%d unexpected bytes after the proof", len(r.unread)-PeerSealOverhead-PeerProofSize)
	}
	if r.err != nil {
		return PeerControlMessage{}, nil, fmt.Errorf("message between neighbours: %w", r.err)
	}
	return c, r.unread, nil
}
