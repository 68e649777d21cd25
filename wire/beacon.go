package wire

import (
	"crypto/ed25519"
	"fmt"
	"slices"
)

// MaxHeard bounds the agents of a cell that a beacon names.
const MaxHeard = 255

// Beacon says that an agent is there, to the others of its cell, and what it has heard of them. Its head has no run and
// no round. A beacon and the one that answers it are a ping and its answer: no others are needed.
type Beacon struct {
	Next     uint32 // milliseconds within which the sender's next beacon comes
	Stamp    uint64 // of the sender's clock, in microseconds; means nothing to others
	Degree   uint16 // most neighbours that the sender takes
	Location Location
	Heard    []Heard // by id, without the sender
}

// Heard is what a beacon's sender knows of another agent of the cell.
type Heard struct {
	PeerAddress
	Stamp uint64 // of that agent's newest beacon
	Held  uint32 // microseconds between its coming and this beacon
	RTT   uint32 // round-trip time to that agent, in microseconds; 0 = not known yet
}

// AppendBeacon appends a beacon's message to dst.
func AppendBeacon(dst []byte, h PeerHead, b *Beacon) []byte {
	w := writer{dst}
	w.peerHead(h)
	w.u32(b.Next)
	w.u64(b.Stamp)
	w.u16(b.Degree)
	w.location(b.Location)
	w.u32(uint32(len(b.Heard)))
	for i := range b.Heard {
		h := &b.Heard[i]
		w.peerAddress(h.PeerAddress)
		w.u64(h.Stamp)
		w.u32(h.Held)
		w.u32(h.RTT)
	}
	return w.b
}

// Attestation is an agent's public key with the coordinator's signature of it.
type Attestation struct {
	Key SignKey
	By  Signed
}

// AttestationText returns what a coordinator signs so that a federation's agents take a key for an agent's.
func AttestationText(federation Federation, agent AgentID, key SignKey) []byte {
	w := writer{[]byte("fedmesh/v2/word\x00")}
	w.str(string(federation))
	w.str(string(agent))
	w.b = append(w.b, key[:]...)
	return w.b
}

// Verify reports whether one of the coordinator's keys has signed the attestation for this agent of the federation.
func (x *Attestation) Verify(s Signatures, federation Federation, agent AgentID,
	coordinators ...ed25519.PublicKey) bool {
	text := AttestationText(federation, agent, x.Key)
	return slices.ContainsFunc(coordinators, func(key ed25519.PublicKey) bool { return s.Verify(key, text, x.By[:]) })
}

// Cell is where beacons are heard.
type Cell struct {
	Federation Federation
	Name       string
}

// beaconText is what the sender of a beacon signs.
func (c Cell) beaconText(message []byte) []byte {
	w := writer{[]byte("fedmesh/v2/beacon\x00")}
	w.str(string(c.Federation))
	w.str(c.Name)
	return append(w.b, message...)
}

// SignBeacon appends to a beacon's message, of type PeerSignedBeacon, what proves that it is its sender's.
func SignBeacon(s Signatures, message []byte, in Cell, word Attestation, key ed25519.PrivateKey) []byte {
	message = append(append(message, word.Key[:]...), word.By[:]...)
	return append(message, s.Sign(key, in.beaconText(message))...)
}

// BeaconProof is what a signed beacon proves its sender with.
type BeaconProof struct {
	Attestation Attestation
	text        []byte // the message up to the signature
	by          []byte
}

// Verify reports whether the word's key has signed the beacon, for a cell. The word itself is not looked at.
func (p *BeaconProof) Verify(s Signatures, in Cell) bool {
	return s.Verify(p.Attestation.Key.Ed25519(), in.beaconText(p.text), p.by)
}

// DecodeBeacon reads a beacon's message. The proof, which is a view of it, is nil if the beacon is not signed.
func DecodeBeacon(p []byte) (PeerHead, Beacon, *BeaconProof, error) {
	h, rest, err := DecodePeerHead(p)
	if err != nil {
		return PeerHead{}, Beacon{}, nil, err
	}
	if h.Type != PeerBeacon && h.Type != PeerSignedBeacon || h.Run != 0 || h.Round != 0 {
		return PeerHead{}, Beacon{}, nil,
			fmt.Errorf("beacon: %w: type %d, run %d, round %d", ErrMalformed, h.Type, h.Run, h.Round)
	}
	r := reader{b: rest}
	b := Beacon{Next: r.u32(), Stamp: r.u64(), Degree: r.u16(), Location: r.location()}
	for range r.count("agents", MaxHeard, 27) {
		h := Heard{PeerAddress: r.peerAddress(), Stamp: r.u64(), Held: r.u32(), RTT: r.u32()}
		if n := len(b.Heard); n > 0 && b.Heard[n-1].ID >= h.ID {
			r.failf("agent %q after %q: they must ascend", h.ID, b.Heard[n-1].ID)
		}
		b.Heard = append(b.Heard, h)
	}
	var proof *BeaconProof
	if h.Type == PeerSignedBeacon {
		proof = &BeaconProof{}
		copy(proof.Attestation.Key[:], r.take(len(proof.Attestation.Key)))
		copy(proof.Attestation.By[:], r.take(len(proof.Attestation.By)))
		proof.text, proof.by = p[:len(p)-len(r.b)], r.take(len(Signed{}))
	}
	return h, b, proof, r.done("beacon")
}
