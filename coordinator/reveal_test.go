package coordinator_test

import (
	"crypto/ed25519"
	"encoding/json"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// secrets returns the encryption secrets in the coordinator's state folder, newest first.
func (f *federation) secrets() []wire.SealSecret {
	saved, err := store.LocalDisk.NewRecordSlots(f.coord.dir, runs.SealKeys).Load(nil)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	var s struct{ Secrets []wire.SealSecret }
	if err := json.Unmarshal(saved.Body, &s); err != nil {
		f.t.Error(err)
	}
	return s.Secrets
}

// reveal parses a message and decrypts it with the coordinator's secrets.
func (f *federation) reveal(m mqtt.Message) (wire.Envelope, error) {
	e, err := wire.ParseEnvelope(m.Payload)
	if err != nil || e.Type != wire.TypeSealed {
		return e, err
	}
	_, agent, _, _, err := f.topics.ParseTopic(m.Topic)
	if err != nil {
		return e, err
	}
	for _, secret := range f.secrets() {
		pair, err := secret.AgentSealKeys(f.public(agent))
		if err != nil {
			return e, err
		}
		key := pair.FromAgentKey
		if e.Sender == wire.CoordinatorID {
			key = pair.ToAgentKey
		}
		if opened, err := key.OpenMessage(e); err == nil {
			return opened, nil
		}
	}
	return e, wire.ErrSealDoesNotOpen
}

// public returns the public key of an agent, even if the agent is not in the list of agents.
func (f *federation) public(agent wire.AgentID) ed25519.PublicKey {
	for _, p := range f.agents {
		if p.id == agent {
			return p.key.Public().(ed25519.PublicKey)
		}
	}
	return f.keys[agent]
}

// inline returns the inline data of a blob reference, decrypted if necessary, or nil.
func (f *federation) inline(ref wire.BlobRef) []byte {
	if len(ref.SealedInline) == 0 {
		return ref.Inline
	}
	for _, secret := range f.secrets() {
		if group, err := secret.GroupSealKey(); err == nil && group.ID() == ref.GroupKeyID {
			if ref, err = ref.OpenSealed(group); err == nil {
				return ref.Inline
			}
		}
	}
	f.t.Error("the coordinator's folder has no key for what is announced")
	return nil
}
