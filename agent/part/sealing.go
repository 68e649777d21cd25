package part

import (
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Sealer seals the agent's messages to the coordinator, and opens the coordinator's messages to this agent. Its keys
// come from announcements; before the first one it has none.
type Sealer struct {
	core                 *AgentCore
	coordinatorRecipient *host.SealRecipient // opens the agent's messages; nil until the first announcement
	// openingKeys are the keys with which the agent opens messages, the newest announced key first.
	openingKeys []host.SealRecipient
}

// NewSealer makes a sealer without keys.
func NewSealer(core *AgentCore) *Sealer { return &Sealer{core: core} }

// maxOwnKeys is the number of announced keys with which the agent opens messages: the newest one and the one before it.
const maxOwnKeys = 2

// AdoptAnnouncedKey derives the keys that the agent shares with the coordinator from the key in an announcement. The
// agent then seals and opens messages with these keys. An announcement older than the obeyed one is used only if the
// agent has no keys yet, so that it can reply. AdoptAnnouncedKey returns a drop error if the announcement has no valid
// key.
func (s *Sealer) AdoptAnnouncedKey(position wire.AnnouncementPosition, announced wire.X25519PublicKey) error {
	if announced == (wire.X25519PublicKey{}) {
		return host.NewMessageDropError(DropUnsealFailed,
			"the announcement has no key for sealing messages to the coordinator")
	}
	if to := s.coordinatorRecipient; to != nil && (to.AnnouncedKey == announced ||
		position.Compare(s.core.ObeyedPosition) < 0) {
		return nil
	}
	pair, err := wire.NewAgentSealKeys(s.core.Signer.Key, announced)
	if err != nil {
		return host.NewMessageDropError(DropUnsealFailed, "the announced sealing key is invalid: %w", err)
	}
	s.coordinatorRecipient = &host.SealRecipient{AnnouncedKey: announced, Key: pair.FromAgentKey}
	s.openingKeys = append([]host.SealRecipient{{AnnouncedKey: announced, Key: pair.ToAgentKey}}, s.openingKeys...)
	s.openingKeys = s.openingKeys[:min(len(s.openingKeys), maxOwnKeys)]
	return nil
}

// MessageToCoordinator returns a message to the coordinator. It is sealed if messages of its type must be.
func (s *Sealer) MessageToCoordinator(t wire.MessageType, run wire.RunID, r wire.RoundID, body []byte) mqtt.Message {
	return mqtt.Message{Topic: s.core.Topics.AgentToCoordinator(s.core.ID), Payload: s.EnvelopeToCoordinator(t, run, r,
		body),
		QoS: mqtt.AtMostOnce}
}

// EnvelopeToCoordinator returns the signed envelope of a body. The body is sealed for the coordinator if messages of
// its type must be.
func (s *Sealer) EnvelopeToCoordinator(t wire.MessageType, run wire.RunID, r wire.RoundID, body []byte) []byte {
	return s.core.Signer.SealedEnvelope(s.coordinatorRecipient, t, run, r, body)
}

// NewBlobSealer returns the seal for the chunks of a blob that is sent to the coordinator.
func (s *Sealer) NewBlobSealer(hash wire.Digest) *wire.BlobSealer {
	return s.coordinatorRecipient.Key.BlobSealer(hash)
}

// OpenMessage returns the message that is sealed for this agent. If it is sealed with a key that no announcement has
// named, an announcement may be missing: the agent asks the broker for it.
func (s *Sealer) OpenMessage(e wire.Envelope) (wire.Envelope, error) {
	for _, r := range s.openingKeys {
		if wire.IsSealedToKey(e.Body, r.AnnouncedKey) {
			opened, err := r.Key.OpenMessage(e)
			if err != nil {
				return e, host.NewMessageDropError(DropUnsealFailed, "%w", err)
			}
			return opened, nil
		}
	}
	if !s.core.IsUplinkBudgetSpent() {
		s.core.Conn.Subscribe(mqtt.AtMostOnce, s.core.Topics.Announcement())
	}
	return e, host.NewMessageDropError(DropUnsealFailed, "it is sealed by a key that no announcement has named")
}
