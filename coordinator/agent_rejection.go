package coordinator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
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

// throttle counts what is done for devices: for one of them once in a time, for all of them a bounded number of times.
type throttle struct {
	minIntervalPerAgent time.Duration
	maxPerInterval      int
	lastTimeByAgent     map[wire.AgentID]time.Time // at most twice as many
	intervalStartedAt   time.Time                  // when counting began
	countInInterval     int
}

func newThrottle(every time.Duration, most int) throttle {
	return throttle{minIntervalPerAgent: every, maxPerInterval: most, lastTimeByAgent: map[wire.AgentID]time.Time{}}
}

// allow reports whether something may be done for a device now, and counts that.
func (u *throttle) allow(agent wire.AgentID, now time.Time) bool {
	if now.Sub(u.intervalStartedAt) >= u.minIntervalPerAgent {
		u.intervalStartedAt, u.countInInterval = now, 0
		maps.DeleteFunc(u.lastTimeByAgent, func(_ wire.AgentID,
			at time.Time) bool {
			return now.Sub(at) >= u.minIntervalPerAgent
		})
	}
	if at, done := u.lastTimeByAgent[agent]; u.countInInterval == u.maxPerInterval || done &&
		now.Sub(at) < u.minIntervalPerAgent {
		return false
	}
	u.lastTimeByAgent[agent] = now
	u.countInInterval++
	return true
}

// rejectMessage answers a hello, a presence or a report that is ignored; it may come from somebody else than the agent.
// A retained message is not answered, since it may be old, and neither is the last will, whose agent is gone.
func (c *Coordinator) rejectMessage(agent wire.AgentID, e *wire.Envelope, m mqtt.Message, reason wire.RejectionReason) {
	presence, err := wire.DecodePresence(e.Body)
	lost := e.Type == wire.TypePresence && err == nil && presence.State == wire.StateLost
	sealed := e.Type == wire.TypeSealed && m.Topic == c.cfg.Topics.AgentToCoordinator(agent) // a hello, or a report
	if m.Retained || e.Type != wire.TypeHello && e.Type != wire.TypePresence && e.Type != wire.TypeReport && !sealed ||
		lost || !c.rejectionThrottle.allow(agent, c.ownerLoop.Now()) {
		return
	}
	answer := wire.Rejection{MessageDigest: sha256.Sum256(m.Payload[:wire.HeaderSize]), Reason: reason}
	c.sendToAgent(agent, wire.TypeRejection, 0, 0, answer.Body())
	c.cfg.Observer.Observe(AgentRejected{Agent: agent, Reason: reason})
}

// noteMessageForRejection notes the agent's newest message, for a rejection when the agent leaves the list.
func (c *Coordinator) noteMessageForRejection(agent wire.AgentID, e *wire.Envelope, m mqtt.Message) {
	if !m.Retained && (e.Type == wire.TypeHello || e.Type == wire.TypeReport || e.Type == wire.TypePresence &&
		!isDepartureMessage(e)) {
		c.newestMessageDigestByAgent[agent] = sha256.Sum256(m.Payload[:wire.HeaderSize])
	}
}

// rejectRevoked sends rejections to agents that have left the list, over the sessions that they still have. At their
// next message it would be too late, once the broker refuses their connections.
func (c *Coordinator) rejectRevoked(gone []wire.AgentID) {
	for _, a := range gone {
		digest, heard := c.newestMessageDigestByAgent[a]
		delete(c.newestMessageDigestByAgent, a)
		if !heard || c.keyOf(a) != nil {
			continue
		}
		answer := wire.Rejection{MessageDigest: digest, Reason: wire.RejectedUnlisted}
		c.sendToAgent(a, wire.TypeRejection, 0, 0, answer.Body())
		c.cfg.Observer.Observe(AgentRejected{Agent: a, Reason: wire.RejectedUnlisted})
	}
}

// ResetBootCounter has the counter of an agent's starts begin anew, as when its state folder was lost: it is heard from
// its next message on, whatever it said before. The error is that it is not in the list, ErrUnlisted, or that the
// owner's goroutine has not been met before ctx ended.
func (c *Coordinator) ResetBootCounter(ctx context.Context, agent wire.AgentID) error {
	unlisted := false
	err := c.runOnOwner(ctx, func() {
		if unlisted = c.keyOf(agent) == nil; !unlisted {
			c.forgetAgents([]wire.AgentID{agent})
		}
	})
	if err == nil && unlisted {
		err = fmt.Errorf("agent %s is %w", agent, ErrUnlisted)
	}
	return err
}

// AgentRejected: the coordinator answered a message of a device that it ignores its messages. Another device may have
// sent the message in the agent's name.
type AgentRejected struct {
	Agent  wire.AgentID
	Reason wire.RejectionReason
}

// Describe implements observe.Event. The table of devices shows the reason; strangers could make any number of
// conditions.
func (e AgentRejected) Describe(d *observe.Description) {
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	if remedy := e.remedy(); remedy != "" {
		attributes = append(attributes, "remedy", remedy)
	}
	d.Log(observe.Warn, "messages of a device are rejected", attributes...)
}

func (e AgentRejected) remedy() string {
	switch e.Reason {
	case wire.RejectedUnlisted:
		return "add its id and public key to identity.agents_file, and reload"
	case wire.RejectedKey:
		return "if it is a new device under this id, put its public key into identity.agents_file, and reload"
	case wire.RejectedBehind:
		return fmt.Sprintf("if its state folder was lost: coordinator devices reset %s", e.Agent)
	case wire.RejectedClone:
		return "give one of the two devices an id and a key of its own"
	}
	return ""
}
