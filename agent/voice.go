package agent

import (
	"sync/atomic"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// voice signs what the agent says. The will is asked for by the connection's
// own goroutine, hence the atomic counter.
type voice struct {
	cfg      *Config
	nonce    uint64
	sequence atomic.Uint64
	birth    atomic.Pointer[mqtt.Message] // presence online, older than the will of the same link
}

func newVoice(cfg *Config) *voice { return &voice{cfg: cfg, nonce: cfg.Rand.Uint64()} }

func (v *voice) seal(t wire.Type, run wire.RunID, round wire.RoundID, body []byte) []byte {
	return wire.Seal(nil, wire.Header{
		Type: t, Federation: v.cfg.Federation, Sender: v.cfg.ID, Epoch: v.cfg.Boot,
		Run: run, Round: round, Sequence: v.sequence.Add(1),
	}, body, v.cfg.Key)
}

// overtaking is how far ahead of its twin's messages an agent's begin: more
// than the twin says before it notices.
const overtaking = 1 << 20

// overtake makes what comes next newer than what a twin of the same boot epoch
// has said, or the coordinator would take it for old.
func (v *voice) overtake(sequence uint64) {
	if now := v.sequence.Load(); now < sequence+overtaking {
		v.sequence.Add(sequence + overtaking - now)
	}
}

// status is a message to the coordinator about a round.
func (v *voice) status(t wire.Type, order wire.Order, body []byte) mqtt.Message {
	return mqtt.Message{
		Topic: v.cfg.Topics.Status(v.cfg.ID), Payload: v.seal(t, order.Run, order.Round, body), QoS: mqtt.AtLeastOnce,
	}
}

func (v *voice) presence(s wire.State) mqtt.Message {
	p := wire.Presence{State: s, Nonce: v.nonce, Speaks: wire.Version, Software: v.cfg.Software}
	return mqtt.Message{
		Topic: v.cfg.Topics.Presence(v.cfg.ID), Payload: v.seal(wire.TypePresence, 0, 0, p.Body()),
		QoS: mqtt.AtLeastOnce, Retained: true,
	}
}

// will is what the broker says when the link dies. The presence that the agent
// publishes when the link is open is sealed just before it: of two messages of
// one type, the coordinator drops the older one if it comes second.
func (v *voice) will() mqtt.Message {
	birth := v.presence(wire.StateOnline)
	v.birth.Store(&birth)
	return v.presence(wire.StateLost)
}

// online is the presence to publish on the link that carries the last will.
func (v *voice) online() mqtt.Message {
	if m := v.birth.Load(); m != nil {
		return *m
	}
	return v.presence(wire.StateOnline)
}
