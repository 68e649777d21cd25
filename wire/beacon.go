package wire

import (
	"crypto/ed25519"
	"fmt"
	"slices"
)

// MaxPeerEchoes is the maximum number of agents in the echo list of a beacon.
const MaxPeerEchoes = 255

// Beacon announces an agent to the other agents of its cell. It also lists the beacons that the agent has received,
// from which each pair of agents measures its round-trip time. The header of a beacon contains no run and no round.
type Beacon struct {
	NextBeaconMillis uint32 // maximum time until the sender's next beacon, in milliseconds
	SentAtMicros     uint64 // time of sending according to the sender's clock, in microseconds since an arbitrary start
	MaxNeighbors     uint16 // maximum number of neighbours that the sending agent accepts
	Location         AgentLocation
	PeerEchoes       []BeaconEcho // latest beacon received from each other agent, ascending by id
}

// BeaconEcho describes the latest beacon that the sender has received from another agent.
type BeaconEcho struct {
	PeerInstance
	BeaconSentAtMicros uint64 // value of SentAtMicros in the received beacon
	HoldMicros         uint32
	RTTMicros          uint32 // round-trip time between sender and agent in microseconds; 0 means unknown
}

// AppendBeacon appends the encoding of beacon b with header h to dst.
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

// AgentKeyAttestation contains an agent's public key and the coordinator's signature of this key.
type AgentKeyAttestation struct {
	AgentKey             SigningPublicKey
	CoordinatorSignature Signature
}

// AgentKeyAttestationText returns the text that the coordinator signs to confirm to other agents that the public key
// belongs to the agent.
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

// BeaconCell identifies a cell, a group of devices of a federation that announce themselves to each other.
type BeaconCell struct {
	Federation FederationName
	CellName   string
}

// signedBeaconText returns the text that the sender of a beacon signs.
func (c BeaconCell) signedBeaconText(message []byte) []byte {
	w := writer{[]byte("fedmesh/v2/beacon\x00")}
	w.str(string(c.Federation))
	w.str(c.CellName)
	return append(w.encoded, message...)
}

// SignBeacon appends the attestation and the sender's signature to a beacon of type PeerSignedBeacon.
func SignBeacon(s SignatureScheme, message []byte, in BeaconCell, word AgentKeyAttestation,
	key ed25519.PrivateKey) []byte {
	message = append(append(message, word.AgentKey[:]...), word.CoordinatorSignature[:]...)
	return append(message, s.Sign(key, in.signedBeaconText(message))...)
}

// BeaconProof proves the sender of a signed beacon.
type BeaconProof struct {
	Attestation AgentKeyAttestation
	signedText  []byte // encoded beacon up to the signature
	signature   []byte
}

// Verify reports whether the beacon is signed for the given cell with the attested key. It does not verify the
// attestation itself.
func (p *BeaconProof) Verify(s SignatureScheme, in BeaconCell) bool {
	return s.Verify(p.Attestation.AgentKey.Ed25519(), in.signedBeaconText(p.signedText), p.signature)
}

// DecodeBeacon decodes a beacon. The proof is nil if the beacon is not signed; otherwise it is a view of p.
func DecodeBeacon(p []byte) (PeerMessageHeader, Beacon, *BeaconProof, error) {
	h, rest, err := DecodePeerMessageHeader(p)
	if err != nil {
		return PeerMessageHeader{}, Beacon{}, nil, err
	}
	if h.Type != PeerBeacon && h.Type != PeerSignedBeacon || h.Run != 0 || h.Round != 0 {
		return PeerMessageHeader{}, Beacon{}, nil,
			fmt.Errorf("beacon: %w: unexpected message type %d, run %d or round %d",
				ErrMalformed, h.Type, h.Run, h.Round)
	}
	r := reader{unread: rest}
	b := Beacon{NextBeaconMillis: r.u32(), SentAtMicros: r.u64(), MaxNeighbors: r.u16(), Location: r.agentLocation()}
	for range r.listLength("agents", MaxPeerEchoes, 27) {
		h := BeaconEcho{PeerInstance: r.peerInstance(), BeaconSentAtMicros: r.u64(), HoldMicros: r.u32(),
			RTTMicros: r.u32()}
		if n := len(b.PeerEchoes); n > 0 && b.PeerEchoes[n-1].ID >= h.ID {
			r.failf("agent %q is listed after %q: agents must be in ascending order", h.ID, b.PeerEchoes[n-1].ID)
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
