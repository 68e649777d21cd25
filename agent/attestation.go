package agent

import (
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// beaconKeys contains the keys that sign and verify beacons. The owner replaces it, and the scout reads it.
type beaconKeys struct {
	attestation *wire.Attestation   // the coordinator's about this agent's key; nil = none
	keys        []ed25519.PublicKey // of the coordinator
	revoked     []wire.AgentID
}

// newBeaconKeys returns the coordinator's valid keys. It includes the attestation if one of these keys has signed it.
func (a *Agent) newBeaconKeys(attestation *wire.Attestation) *beaconKeys {
	v := &beaconKeys{keys: a.identity.CoordinatorKeys(), revoked: a.identity.Revoked()}
	if attestation != nil && attestation.AgentKey == wire.SigningPublicKeyOf(a.core.Signer.Key) &&
		attestation.Verify(a.cfg.Signatures, a.cfg.Federation, a.cfg.ID, v.keys...) {
		v.attestation = attestation
	}
	return v
}

// loadAttestation reads the attestation that an earlier start has stored; nil if there is none.
func loadAttestation(c *Config) (attestation *wire.Attestation, err error) {
	const size = len(attestation.AgentKey) + len(attestation.CoordinatorSignature)
	err = c.state().Load(state.Attestation, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("%d bytes, want %d", len(b), size)
		}
		attestation = &wire.Attestation{AgentKey: wire.SigningPublicKey(b),
			CoordinatorSignature: wire.Signature(b[len(attestation.AgentKey):])}
		return nil
	})
	return attestation, err
}

// restoreAttestation restores the attestation of an earlier start.
func (a *Agent) restoreAttestation() error {
	attestation, err := loadAttestation(&a.cfg)
	a.mesh.beaconKeys.Store(a.newBeaconKeys(attestation))
	return err
}

func saveAttestation(c *Config, attestation *wire.Attestation) error {
	return c.state().Save(state.Attestation, append(slices.Clone(attestation.AgentKey[:]),
		attestation.CoordinatorSignature[:]...))
}

// adoptAttestation stores the coordinator's signature of this agent's key. Neighbours ignore beacons without it. A
// write that fails is repeated; after a restart without the file, the next invitation contains the signature.
func (a *Agent) adoptAttestation(by wire.Signature) {
	own, was := wire.SigningPublicKeyOf(a.core.Signer.Key), a.mesh.beaconKeys.Load().attestation
	attestation := &wire.Attestation{AgentKey: own, CoordinatorSignature: by}
	if by == (wire.Signature{}) || !a.mesh.hasCell() || was != nil && *was == *attestation {
		return
	}
	next := a.newBeaconKeys(attestation)
	if next.attestation == nil {
		return // of a key of the coordinator that does not count here
	}
	a.mesh.replaceBeaconKeys(next)
	a.writes.Start(state.Write{Purpose: attestationWrite,
		Do: func() error { return saveAttestation(&a.cfg, attestation) }})
}

// replaceBeaconKeys replaces the keys of beacons, and makes the scout send a beacon.
func (m *mesh) replaceBeaconKeys(v *beaconKeys) {
	m.beaconKeys.Store(v)
	replaceLatest(m.beaconKeysChanged, struct{}{})
	m.scoutWaiter.Wake()
}

// signBeacon appends the attestation and the signature to a beacon. It returns nil if there is no attestation.
func (m *mesh) signBeacon(message []byte) []byte {
	v := m.beaconKeys.Load()
	if v.attestation == nil {
		return nil
	}
	return wire.SignBeacon(m.cfg.Signatures, message, m.cell(), *v.attestation, m.signer.Key)
}

// checkBeacon returns why a beacon does not count. An agent without a word hears those that are not signed, too: of
// agents whose coordinator gives no words yet, or who have not been invited yet.
func (m *mesh) checkBeacon(from wire.AgentID, proof *wire.BeaconProof) error {
	switch v := m.beaconKeys.Load(); {
	case slices.Contains(v.revoked, from):
		return host.NewDropError(part.DropSignature, "a beacon of %s, which the root document revokes", from)
	case proof == nil && v.attestation == nil:
		return nil
	case proof == nil:
		return host.NewDropError(part.DropSignature, "a beacon of %s that is not signed", from)
	case !proof.Attestation.Verify(m.cfg.Signatures, m.cfg.Federation, from, v.keys...):
		return host.NewDropError(part.DropSignature,
			"a beacon of %s with a key for which the coordinator has not given its word",
			from)
	case !proof.Verify(m.cfg.Signatures, m.cell()):
		return host.NewDropError(part.DropSignature, "a beacon that %s has not signed for this cell", from)
	}
	return nil
}

func (m *mesh) cell() wire.BeaconCell {
	return wire.BeaconCell{Federation: m.cfg.Federation, Name: m.cfg.Mesh.Cell}
}
