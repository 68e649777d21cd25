package world

import (
	"slices"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// pairing identifies the encryption keys that an agent and a coordinator share.
type pairing struct {
	secret wire.SealSecret
	agent  wire.AgentID
}

// reveal parses a message and decrypts it if it is sealed.
func (w *World) reveal(m mqtt.Message) (wire.Envelope, error) {
	e, _, err := w.revealed(m)
	return e, err
}

// revealed decrypts a message like reveal. It also returns the key of the encryption, which is zero if the message is
// not sealed (encrypted).
func (w *World) revealed(m mqtt.Message) (e wire.Envelope, with wire.SealKey, err error) {
	e, err = wire.ParseEnvelope(m.Payload)
	if err != nil || e.Type != wire.TypeSealed {
		return e, with, err
	}
	_, agent, _, _, err := topics().ParseTopic(m.Topic)
	if err != nil {
		return e, with, err
	}
	for _, secret := range slices.Backward(w.secrets) {
		at := pairing{secret, agent}
		pair, known := w.pairs[at]
		if !known {
			if pair, err = secret.AgentSealKeys(w.agent(agent).public()); err != nil {
				return e, with, err
			}
			if w.pairs == nil {
				w.pairs = map[pairing]wire.AgentSealKeys{}
			}
			w.pairs[at] = pair
		}
		key := pair.FromAgentKey
		if e.Sender == wire.CoordinatorID {
			key = pair.ToAgentKey
		}
		if opened, err := key.OpenMessage(e); err == nil {
			return opened, key, nil
		}
	}
	return e, with, wire.ErrSealDoesNotOpen
}
