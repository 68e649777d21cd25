package agent

import (
	"sync/atomic"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// signer signs and seals the messages of the agent. The will is asked for by the connection's own goroutine.
type signer struct {
	*host.Signer
	cfg                *Config
	nonce              uint64
	onlinePresence     atomic.Pointer[mqtt.Message] // presence online, older than the will of the same link
	skipPresence       atomic.Bool                  // the next link tells no presence
	coordinatorSealKey *host.SealRecipient          // the coordinator; nil until the first announcement
}

func newSigner(cfg *Config, s *host.Signer) *signer {
	return &signer{Signer: s, cfg: cfg, nonce: cfg.Rand.Uint64()}
}

// cloneSequenceMargin is how far ahead of its clone's messages an agent's begin: more
// than the clone says before it notices.
const cloneSequenceMargin = 1 << 20

// roundMessage is a message to the coordinator about a round.
func (s *signer) roundMessage(t wire.MessageType, order wire.AnnouncementPosition, body []byte) mqtt.Message {
	return mqtt.Message{
		Topic: s.cfg.Topics.AgentToCoordinator(s.cfg.ID), Payload: s.SealedEnvelope(s.coordinatorSealKey, t, order.Run,
			order.Round, body),
		QoS: mqtt.AtMostOnce,
	}
}

func (s *signer) presence(state wire.PresenceState) mqtt.Message {
	p := wire.Presence{State: state, Nonce: s.nonce, MaxProtocolVersion: wire.Version, Software: s.cfg.Software,
		VolatileStorage: s.cfg.Volatile}
	return mqtt.Message{
		Topic: s.cfg.Topics.Presence(s.cfg.ID), Payload: s.SignedEnvelope(wire.TypePresence, 0, 0, p.Body()),
		QoS: mqtt.AtMostOnce, Retained: true,
	}
}

// sealedWill is what the broker says when the link dies. The presence that the agent
// publishes when the link is open is sealed just before it: of two messages of
// one type, the coordinator drops the older one if it comes second.
func (s *signer) sealedWill() mqtt.Message {
	if s.skipPresence.Load() {
		s.onlinePresence.Store(nil)
		return mqtt.Message{}
	}
	birth := s.presence(wire.StateOnline)
	s.onlinePresence.Store(&birth)
	return s.presence(wire.StateLost)
}

// onlinePresenceForLink is the presence to publish on the link that carries the last will, or that has none.
func (s *signer) onlinePresenceForLink() mqtt.Message {
	if m := s.onlinePresence.Load(); m != nil {
		return *m
	}
	return s.presence(wire.StateOnline)
}
