package part

import (
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Sealer encrypts messages to the coordinator and decrypts messages to this agent. It has no keys before the first
// announcement.
type Sealer struct {
	core                 *AgentCore
	coordinatorRecipient *host.SealRecipient // encrypts for the coordinator; nil before the first announcement
	// openingKeys contains the keys that decrypt received messages, newest first.
	openingKeys []host.SealRecipient
}

// NewSealer returns a Sealer without keys.
func NewSealer(core *AgentCore) *Sealer { return &Sealer{core: core} }

// maxOwnKeys is the maximum number of decryption keys, which are the newest and the previous key.
const maxOwnKeys = 2

// AdoptAnnouncedKey derives the keys shared with the coordinator from the public key in an announcement. It returns an
// error with a drop reason if the announcement has no valid key. It uses an announcement that is older than the last
// followed one only if the agent has no keys yet, so that the agent can reply.
func (s *Sealer) AdoptAnnouncedKey(position wire.AnnouncementPosition, announced wire.X25519PublicKey) error {
	if announced == (wire.X25519PublicKey{}) {
		return host.NewMessageDropError(DropUnsealFailed,
			"the announcement does not contain the key that encrypts messages to the coordinator")
	}
	if to := s.coordinatorRecipient; to != nil && (to.AnnouncedKey == announced ||
		position.Compare(s.core.ObeyedPosition) < 0) {
		return nil
	}
	pair, err := wire.NewAgentSealKeys(s.core.Signer.Key, announced)
	if err != nil {
		return host.NewMessageDropError(DropUnsealFailed, "the announced encryption key is invalid: %w", err)
	}
	s.coordinatorRecipient = &host.SealRecipient{AnnouncedKey: announced, Key: pair.FromAgentKey}
	s.openingKeys = append([]host.SealRecipient{{AnnouncedKey: announced, Key: pair.ToAgentKey}}, s.openingKeys...)
	s.openingKeys = s.openingKeys[:min(len(s.openingKeys), maxOwnKeys)]
	return nil
}

// MessageToCoordinator returns a message to the coordinator, encrypted if its type requires this.
func (s *Sealer) MessageToCoordinator(t wire.MessageType, run wire.RunID, r wire.RoundID, body []byte) mqtt.Message {
	return mqtt.Message{Topic: s.core.Topics.AgentToCoordinator(s.core.ID), Payload: s.EnvelopeToCoordinator(t, run, r,
		body),
		QoS: mqtt.AtMostOnce}
}

// EnvelopeToCoordinator returns a signed envelope with the given body, encrypted for the coordinator if the message
// type requires this.
func (s *Sealer) EnvelopeToCoordinator(t wire.MessageType, run wire.RunID, r wire.RoundID, body []byte) []byte {
	return s.core.Signer.SealedEnvelope(s.coordinatorRecipient, t, run, r, body)
}

// NewBlobSealer returns a sealer that encrypts the chunks of a blob for the coordinator.
func (s *Sealer) NewBlobSealer(hash wire.Digest) *wire.BlobSealer {
	return s.coordinatorRecipient.Key.BlobSealer(hash)
}

// OpenMessage decrypts a message to this agent. If the key is unknown, it requests the current announcement from the
// broker, because the agent may have missed it.
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
	return e, host.NewMessageDropError(DropUnsealFailed, "the message is encrypted with an unknown key: no "+
		"announcement has contained this key")
}
