package wire

import (
	"crypto/ed25519"
	"fmt"
	"slices"
)

// MaxPeerEchoes bounds the agents of a cell that a beacon names.
const MaxPeerEchoes = 255

// Beacon says that an agent is there, to the others of its cell, and what it has heard of them. Its head has no run and
// no round. A beacon and the one that answers it are a ping and its answer: no others are needed.
type Beacon struct {
	NextBeaconMillis uint32 // milliseconds within which the sender's next beacon comes
	SentAtMicros     uint64 // of the sender's clock, in microseconds; means nothing to others
	MaxNeighbors     uint16 // most neighbours that the sender takes
	Location         AgentLocation
	PeerEchoes       []BeaconEcho // by id, without the sender
}

// BeaconEcho is what a beacon's sender knows of another agent of the cell.
type BeaconEcho struct {
	PeerInstance
	BeaconSentAtMicros uint64 // of that agent's newest beacon
	HoldMicros         uint32 // microseconds between its coming and this beacon
	RTTMicros          uint32 // round-trip time to that agent, in microseconds; 0 = not known yet
}

// AppendBeacon appends a beacon's message to dst.
func AppendBeacon(dst []byte, h PeerMessageHeader, b *Beacon) []byte {
	w := writer{dst}
	w.peerMessageHeader(h)
	w.u32(b.NextBeaconMillis)
	w.u64(b.SentAtMicros)
	w.u16(b.MaxNeighbors)
	w.agentLocation(b.Location)
	w.u32(uint32(len(b.PeerEchoes)))
	for i := range b.PeerEchoes {
		h := &b.PeerEchoes[i]
		w.peerInstance(h.PeerInstance)
		w.u64(h.BeaconSentAtMicros)
		w.u32(h.HoldMicros)
		w.u32(h.RTTMicros)
	}
	return w.encoded
}

// AgentKeyAttestation is an agent's public key with the coordinator's signature of it.
type AgentKeyAttestation struct {
	AgentKey             SigningPublicKey
	CoordinatorSignature Signature
}

// AgentKeyAttestationText returns what a coordinator signs so that a federation's agents take a key for an agent's.
func AgentKeyAttestationText(federation FederationName, agent AgentID, key SigningPublicKey) []byte {
	w := writer{[]byte("fedmesh/v2/word\x00")}
	w.str(string(federation))
	w.str(string(agent))
	w.encoded = append(w.encoded, key[:]...)
	return w.encoded
}

// Verify reports whether one of the coordinator's keys has signed the attestation for this agent of the federation.
func (x *AgentKeyAttestation) Verify(s SignatureScheme, federation FederationName, agent AgentID,
	coordinators ...ed25519.PublicKey) bool {
	text := AgentKeyAttestationText(federation, agent, x.AgentKey)
	return slices.ContainsFunc(coordinators, func(key ed25519.PublicKey) bool {
		return s.Verify(key, text,
			x.CoordinatorSignature[:])
	})
}

// BeaconCell is where beacons are heard.
type BeaconCell struct {
	Federation FederationName
	CellName   string
}

// signedBeaconText is what the sender of a beacon signs.
func (c BeaconCell) signedBeaconText(message []byte) []byte {
	w := writer{[]byte("fedmesh/v2/beacon\x00")}
	w.str(string(c.Federation))
	w.str(c.CellName)
	return append(w.encoded, message...)
}

// SignBeacon appends to a beacon's message, of type PeerSignedBeacon, what proves that it is its sender's.
func SignBeacon(s SignatureScheme, message []byte, in BeaconCell, word AgentKeyAttestation,
	key ed25519.PrivateKey) []byte {
	message = append(append(message, word.AgentKey[:]...), word.CoordinatorSignature[:]...)
	return append(message, s.Sign(key, in.signedBeaconText(message))...)
}

// BeaconProof is what a signed beacon proves its sender with.
type BeaconProof struct {
	Attestation AgentKeyAttestation
	signedText  []byte // the message up to the signature
	signature   []byte
}

// Verify reports whether the word's key has signed the beacon, for a cell. The word itself is not looked at.
func (p *BeaconProof) Verify(s SignatureScheme, in BeaconCell) bool {
	return s.Verify(p.Attestation.AgentKey.Ed25519(), in.signedBeaconText(p.signedText), p.signature)
}

// DecodeBeacon reads a beacon's message. The proof, which is a view of it, is nil if the beacon is not signed.
func DecodeBeacon(p []byte) (PeerMessageHeader, Beacon, *BeaconProof, error) {
	h, rest, err := DecodePeerMessageHeader(p)
	if err != nil {
		return PeerMessageHeader{}, Beacon{}, nil, err
	}
	if h.Type != PeerBeacon && h.Type != PeerSignedBeacon || h.Run != 0 || h.Round != 0 {
		return PeerMessageHeader{}, Beacon{}, nil,
			fmt.Errorf("beacon: %w: type %d, run %d, round %d", ErrMalformed, h.Type, h.Run, h.Round)
	}
	r := reader{unread: rest}
	b := Beacon{NextBeaconMillis: r.u32(), SentAtMicros: r.u64(), MaxNeighbors: r.u16(), Location: r.agentLocation()}
	for range r.listLength("agents", MaxPeerEchoes, 27) {
		h := BeaconEcho{PeerInstance: r.peerInstance(), BeaconSentAtMicros: r.u64(), HoldMicros: r.u32(),
			RTTMicros: r.u32()}
		if n := len(b.PeerEchoes); n > 0 && b.PeerEchoes[n-1].ID >= h.ID {
			r.failf("agent %q after %q: they must ascend", h.ID, b.PeerEchoes[n-1].ID)
		}
		b.PeerEchoes = append(b.PeerEchoes, h)
	}
	var proof *BeaconProof
	if h.Type == PeerSignedBeacon {
		proof = &BeaconProof{}
		copy(proof.Attestation.AgentKey[:], r.takeBytes(len(proof.Attestation.AgentKey)))
		copy(proof.Attestation.CoordinatorSignature[:], r.takeBytes(len(proof.Attestation.CoordinatorSignature)))
		proof.signedText, proof.signature = p[:len(p)-len(r.unread)], r.takeBytes(len(Signature{}))
	}
	return h, b, proof, r.finish("beacon")
}
