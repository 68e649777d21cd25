package mesh

import (
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// beaconKeys contains the keys that sign and verify beacons. The value is immutable: the event loop replaces it, and
// the scout goroutine reads it.
type beaconKeys struct {
	attestation     *wire.AgentKeyAttestation // coordinator's signature of this agent's key; nil if the agent has none
	coordinatorKeys []ed25519.PublicKey
	revokedAgents   []wire.AgentID
}

// newBeaconKeys returns the current keys for beacons. It includes the attestation only if a valid coordinator key has
// signed it.
func (m *NeighborMesh) newBeaconKeys(attestation *wire.AgentKeyAttestation) *beaconKeys {
	k := &beaconKeys{coordinatorKeys: m.trust.CoordinatorKeys(), revokedAgents: m.trust.RevokedAgents()}
	signer := m.core.Signer
	if attestation != nil && attestation.AgentKey == wire.SigningPublicKeyOf(signer.Key) &&
		attestation.Verify(signer.SignatureScheme, m.core.Federation, m.core.ID, k.coordinatorKeys...) {
		k.attestation = attestation
	}
	return k
}

// ApplyRootDocument updates the keys for beacons after a new root document (list of trusted keys) was installed.
func (m *NeighborMesh) ApplyRootDocument() {
	m.replaceBeaconKeys(m.newBeaconKeys(m.beaconKeys.Load().attestation))
}

// loadAttestation returns the saved attestation, or nil if none was saved.
func loadAttestation(folder state.Folder) (attestation *wire.AgentKeyAttestation, err error) {
	const size = len(attestation.AgentKey) + len(attestation.CoordinatorSignature)
	err = folder.LoadFile(state.Attestation, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("the content of the file has %d bytes instead of %d", len(b), size)
		}
		attestation = &wire.AgentKeyAttestation{AgentKey: wire.SigningPublicKey(b),
			CoordinatorSignature: wire.Signature(b[len(attestation.AgentKey):])}
		return nil
	})
	return attestation, err
}

// AdoptAttestation saves the attestation from an invitation, which is the coordinator's signature of this agent's key.
// Neighbours ignore beacons without an attestation. If the file is lost, the next invitation contains the attestation
// again.
func (m *NeighborMesh) AdoptAttestation(by wire.Signature) {
	own, was := wire.SigningPublicKeyOf(m.core.Signer.Key), m.beaconKeys.Load().attestation
	attestation := &wire.AgentKeyAttestation{AgentKey: own, CoordinatorSignature: by}
	if by == (wire.Signature{}) || !m.hasCell() || was != nil && *was == *attestation {
		return
	}
	next := m.newBeaconKeys(attestation)
	if next.attestation == nil {
		return // The coordinator key that signed the attestation is not valid.
	}
	m.replaceBeaconKeys(next)
	m.core.WriteRetrier.StartWrite(state.RetriedWrite{Purpose: "save the attestation of this agent's key",
		WriteFile: func() error {
			return m.core.StateFolder.SaveFile(state.Attestation, append(slices.Clone(own[:]), by[:]...))
		}})
}

// replaceBeaconKeys replaces the beacon keys and makes the scout send a beacon.
func (m *NeighborMesh) replaceBeaconKeys(v *beaconKeys) {
	m.beaconKeys.Store(v)
	host.ReplaceLatest(m.beaconKeysChanged, struct{}{})
	m.scoutWaiter.Wake()
}

// signBeacon appends the attestation and the signature to a beacon. It returns nil if the agent has no attestation.
func (m *NeighborMesh) signBeacon(message []byte) []byte {
	v := m.beaconKeys.Load()
	if v.attestation == nil {
		return nil
	}
	return wire.SignBeacon(m.core.Signer.SignatureScheme, message, m.beaconCell(), *v.attestation, m.core.Signer.Key)
}

// checkBeacon returns an error if a received beacon must be ignored. An agent without an attestation also accepts
// unsigned beacons, because its neighbours may lack one too.
func (m *NeighborMesh) checkBeacon(from wire.AgentID, proof *wire.BeaconProof) error {
	switch v := m.beaconKeys.Load(); {
	case slices.Contains(v.revokedAgents, from):
		return host.NewMessageDropError(part.DropSignature, "discovery beacon from agent %s, which is revoked by the "+
			"root document", from)
	case proof == nil && v.attestation == nil:
		return nil
	case proof == nil:
		return host.NewMessageDropError(part.DropSignature, "unsigned discovery beacon from agent %s", from)
	case !proof.Attestation.Verify(m.core.Signer.SignatureScheme, m.core.Federation, from, v.coordinatorKeys...):
		return host.NewMessageDropError(part.DropSignature,
			"discovery beacon from agent %s, whose key is not attested by the coordinator",
			from)
	case !proof.Verify(m.core.Signer.SignatureScheme, m.beaconCell()):
		return host.NewMessageDropError(part.DropSignature, "discovery beacon with an invalid signature of agent %s "+
			"for this cell", from)
	}
	return nil
}

func (m *NeighborMesh) beaconCell() wire.BeaconCell {
	return wire.BeaconCell{Federation: m.core.Federation, CellName: m.cfg.Cell}
}
