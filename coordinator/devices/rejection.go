package devices

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Limits for rejections: the interval per agent id, and the maximum for all ids per interval. They are needed because
// anyone at the broker can provoke rejections without a key.
const (
	rejectionInterval        = time.Minute
	maxRejectionsPerInterval = 60
)

// RejectMessage sends a rejection for an ignored hello, presence or report. The sender may be an impostor. Retained
// messages may be old and last wills have no living sender, so they are not answered.
func (d *MessageChecker) RejectMessage(agent wire.AgentID, e *wire.Envelope, m mqtt.Message,
	reason wire.MessageRejectionReason) {
	presence, err := wire.DecodePresence(e.Body)
	lost := e.Type == wire.TypePresence && err == nil && presence.State == wire.PresenceLost
	// sealed is true for an encrypted hello or report.
	sealed := e.Type == wire.TypeSealed && m.Topic == d.cfg.Topics.AgentToCoordinator(agent)
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

// isAnswerable reports whether an accepted message may later be answered with a rejection, if the agent is removed from
// the list.
func isAnswerable(e *wire.Envelope, m mqtt.Message) bool {
	return !m.Retained && (e.Type == wire.TypeHello || e.Type == wire.TypeMetricsReport ||
		e.Type == wire.TypePresence &&
			!isDeparture(e))
}

// RejectRemovedAgents sends rejections to agents that were removed from the list. It sends them at once, because the
// broker may refuse the next connection of these agents.
func (d *MessageChecker) RejectRemovedAgents(gone []wire.AgentID) {
	for _, agent := range gone {
		digest, known := d.answerableDigestByAgent[agent]
		delete(d.answerableDigestByAgent, agent)
		if known && d.AgentKey(agent) == nil {
			d.sendRejection(agent, digest, wire.RejectedUnlistedAgent)
		}
	}
}

// AgentRejected reports that the coordinator sent a rejection to a device. Another device may have sent the rejected
// message in the agent's name.
type AgentRejected struct {
	Agent  wire.AgentID
	Reason wire.MessageRejectionReason
}

// Describe implements observe.Event. It raises no condition, since strangers could then raise any number of them. The
// table of devices shows the reason.
func (e AgentRejected) Describe(d *observe.EventDescription) {
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	if remedy := e.remedy(); remedy != "" {
		attributes = append(attributes, "remedy", remedy)
	}
	d.Log(observe.Warn, "messages from a device are rejected", attributes...)
}

func (e AgentRejected) remedy() string {
	switch e.Reason {
	case wire.RejectedUnlistedAgent:
		return "add the device's id and public key to identity.agents_file, and reload the coordinator"
	case wire.RejectedOtherKey:
		return "if a new device uses this id, enter its public key in identity.agents_file, and reload the coordinator"
	case wire.RejectedOldEpoch:
		return fmt.Sprintf("if the device has lost its state folder, run `coordinator devices reset %s`", e.Agent)
	case wire.RejectedClone:
		return "two devices use the same id: give one of them its own id and key"
	}
	return ""
}
