package agent

import (
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// adoptSealKey derives the keys that the agent shares with the coordinator from the key in an announcement. The agent
// then seals and opens messages with these keys. An announcement older than the obeyed one is used only if the agent
// has no keys yet, so that it can reply. adoptSealKey returns a drop error if the announcement has no valid key.
func (a *Agent) adoptSealKey(order wire.AnnouncementPosition, announced wire.X25519PublicKey) error {
	if announced == (wire.X25519PublicKey{}) {
		return host.NewDropError(part.DropUnsealFailed,
			"the announcement has no key for sealing messages to the coordinator")
	}
	if to := a.coordinatorSeal; to != nil && (to.AnnouncedKey == announced ||
		order.Compare(a.lastObeyedPosition) < 0) {
		return nil
	}
	pair, err := wire.NewSealKeys(a.core.Signer.Key, announced)
	if err != nil {
		return host.NewDropError(part.DropUnsealFailed, "the announced sealing key is invalid: %w", err)
	}
	a.coordinatorSeal = &host.SealRecipient{AnnouncedKey: announced, Key: pair.FromAgent}
	a.ownSealRecipients = append([]host.SealRecipient{{AnnouncedKey: announced, Key: pair.ToAgent}},
		a.ownSealRecipients...)
	a.ownSealRecipients = a.ownSealRecipients[:min(len(a.ownSealRecipients), 2)]
	return nil
}

// toCoordinator returns a message to the coordinator. It is sealed if messages of its type must be.
func (a *Agent) toCoordinator(t wire.MessageType, run wire.RunID, r wire.RoundID, body []byte) mqtt.Message {
	return mqtt.Message{Topic: a.cfg.Topics.AgentToCoordinator(a.cfg.ID),
		Payload: a.core.Signer.SealedEnvelope(a.coordinatorSeal, t, run, r, body), QoS: mqtt.AtMostOnce}
}

// unseal returns the message that is sealed for this agent. One to a key that it has not read of may name an
// announcement that has not come.
func (a *Agent) unseal(e wire.Envelope) (wire.Envelope, error) {
	for _, r := range a.ownSealRecipients {
		if wire.SealedTo(e.Body, r.AnnouncedKey) {
			opened, err := r.Key.OpenMessage(e)
			if err != nil {
				return e, host.NewDropError(part.DropUnsealFailed, "%w", err)
			}
			return opened, nil
		}
	}
	if !a.budget.Spent() {
		a.core.Conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Announcement())
	}
	return e, host.NewDropError(part.DropUnsealFailed, "it is sealed by a key that no announcement has named")
}
