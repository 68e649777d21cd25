package devices

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// A device whose messages are ignored gets a rejection with the reason. Anybody at the broker can provoke one, without
// a key: so each id gets at most one in rejectionInterval, and all ids together maxRejectionsPerInterval.
const (
	rejectionInterval        = time.Minute
	maxRejectionsPerInterval = 60
)

// RejectMessage answers a hello, a presence or a report that is ignored. Somebody else than the agent may have sent it.
// A retained message is not answered, since it may be old; a will is not answered, since its agent is gone.
func (d *MessageChecker) RejectMessage(agent wire.AgentID, e *wire.Envelope, m mqtt.Message,
	reason wire.MessageRejectionReason) {
	presence, err := wire.DecodePresence(e.Body)
	lost := e.Type == wire.TypePresence && err == nil && presence.State == wire.PresenceLost
	sealed := e.Type == wire.TypeSealed && m.Topic == d.cfg.Topics.AgentToCoordinator(agent) // a hello, or a report
	if m.Retained || e.Type != wire.TypeHello && e.Type != wire.TypePresence && e.Type != wire.TypeMetricsReport &&
		!sealed ||
		lost || !d.rejectionThrottle.allowAgent(agent, d.cfg.Now()) {
		return
	}
	d.sendRejection(agent, digestOfMessageHeader(m), reason)
}

func digestOfMessageHeader(m mqtt.Message) wire.Digest {
	return sha256.Sum256(m.Payload[:wire.HeaderSize])
}

func (d *MessageChecker) sendRejection(agent wire.AgentID, message wire.Digest, reason wire.MessageRejectionReason) {
	answer := wire.MessageRejection{MessageDigest: message, Reason: reason}
	d.cfg.SendToAgent(agent, wire.TypeMessageRejection, answer.Body())
	d.cfg.Observer.Observe(AgentRejected{Agent: agent, Reason: reason})
}

// isAnswerable reports whether a message that counts may still be answered by a rejection, when its agent leaves the
// list.
func isAnswerable(e *wire.Envelope, m mqtt.Message) bool {
	return !m.Retained && (e.Type == wire.TypeHello || e.Type == wire.TypeMetricsReport ||
		e.Type == wire.TypePresence &&
			!isDeparture(e))
}

// RejectRemovedAgents sends rejections to agents that have left the list, over the links that they still have. At their
// next message it would be too late if the broker refuses their connections by then.
func (d *MessageChecker) RejectRemovedAgents(gone []wire.AgentID) {
	for _, agent := range gone {
		digest, known := d.answerableDigestByAgent[agent]
		delete(d.answerableDigestByAgent, agent)
		if known && d.AgentKey(agent) == nil {
			d.sendRejection(agent, digest, wire.RejectedUnlistedAgent)
		}
	}
}

// AgentRejected: the coordinator answered a message of a device that it ignores its messages. Another device may have
// sent the message in the agent's name.
type AgentRejected struct {
	Agent  wire.AgentID
	Reason wire.MessageRejectionReason
}

// Describe implements observe.Event. The table of devices shows the reason; strangers could make any number of
// conditions.
func (e AgentRejected) Describe(d *observe.EventDescription) {
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	if remedy := e.remedy(); remedy != "" {
		attributes = append(attributes, "remedy", remedy)
	}
	d.Log(observe.Warn, "messages of a device are rejected", attributes...)
}

func (e AgentRejected) remedy() string {
	switch e.Reason {
	case wire.RejectedUnlistedAgent:
		return "add its id and public key to identity.agents_file, and reload"
	case wire.RejectedOtherKey:
		return "if it is a new device under this id, put its public key into identity.agents_file, and reload"
	case wire.RejectedOldEpoch:
		return fmt.Sprintf("if its state folder was lost: coordinator devices reset %s", e.Agent)
	case wire.RejectedClone:
		return "give one of the two devices an id and a key of its own"
	}
	return ""
}
