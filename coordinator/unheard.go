package coordinator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A device that is not heard is told so. Anyone at the broker can provoke such an answer, without a key of the list: so
// each id gets one a minute at most, and all of them together unheardMost.
const (
	unheardEvery = time.Minute
	unheardMost  = 60
)

// throttle counts what is done for devices: for one of them once in a time, for all of them a bounded number of times.
type throttle struct {
	every time.Duration
	most  int
	done  map[wire.AgentID]time.Time // at most twice as many
	since time.Time                  // when counting began
	count int
}

func newThrottle(every time.Duration, most int) throttle {
	return throttle{every: every, most: most, done: map[wire.AgentID]time.Time{}}
}

// may reports whether something may be done for a device now, and counts that.
func (u *throttle) may(agent wire.AgentID, now time.Time) bool {
	if now.Sub(u.since) >= u.every {
		u.since, u.count = now, 0
		maps.DeleteFunc(u.done, func(_ wire.AgentID, at time.Time) bool { return now.Sub(at) >= u.every })
	}
	if at, done := u.done[agent]; u.count == u.most || done && now.Sub(at) < u.every {
		return false
	}
	u.done[agent] = now
	u.count++
	return true
}

// tellUnheard answers a hello, a presence or a report that is not used, which need not be its agent's. A retained one
// may have been said long ago, and the broker says an agent's last one, that it is lost: nobody hears an answer to it.
func (c *Coordinator) tellUnheard(agent wire.AgentID, e *wire.Envelope, m mqtt.Message, reason wire.UnheardReason) {
	sealed := e.Type == wire.TypeSealed && m.Topic == c.cfg.Topics.Status(agent) // a hello, or a report
	if m.Retained || e.Type != wire.TypeHello && e.Type != wire.TypePresence && e.Type != wire.TypeReport && !sealed ||
		lastWords(e) || !c.rejectionReplies.may(agent, c.owner.Now()) {
		return
	}
	answer := wire.Unheard{Answers: sha256.Sum256(m.Payload[:wire.HeaderSize]), Reason: reason}
	c.tell(agent, wire.TypeUnheard, 0, 0, answer.Body())
	c.cfg.Observer.Observe(AgentUnheard{Agent: agent, Reason: reason})
}

// rememberRejectable keeps which message of an agent was the last one that it would be told of if it were not used.
func (c *Coordinator) rememberRejectable(agent wire.AgentID, e *wire.Envelope, m mqtt.Message) {
	if !m.Retained && (e.Type == wire.TypeHello || e.Type == wire.TypeReport || e.Type == wire.TypePresence &&
		!isWill(e)) {
		c.lastRejectable[agent] = sha256.Sum256(m.Payload[:wire.HeaderSize])
	}
}

// tellRevoked tells agents that were heard and are not in the list any more, over the sessions that they still have:
// their next message would be too late, once the broker keeps them out.
func (c *Coordinator) tellRevoked(gone []wire.AgentID) {
	for _, a := range gone {
		digest, heard := c.lastRejectable[a]
		delete(c.lastRejectable, a)
		if !heard || c.keyOf(a) != nil {
			continue
		}
		answer := wire.Unheard{Answers: digest, Reason: wire.UnheardUnlisted}
		c.tell(a, wire.TypeUnheard, 0, 0, answer.Body())
		c.cfg.Observer.Observe(AgentUnheard{Agent: a, Reason: wire.UnheardUnlisted})
	}
}

// lastWords tells a presence that says that the agent is lost.
func lastWords(e *wire.Envelope) bool {
	if e.Type != wire.TypePresence {
		return false
	}
	p, err := wire.DecodePresence(e.Body)
	return err == nil && p.State == wire.StateLost
}

// Reset has the counter of an agent's starts begin anew, as when its state folder was lost: it is heard from its next
// message on, whatever it said before. The error is that it is not in the list, ErrUnlisted, or that the owner's
// goroutine has not been met before ctx ended.
func (c *Coordinator) Reset(ctx context.Context, agent wire.AgentID) error {
	unlisted := false
	err := c.met(ctx, func() {
		if unlisted = c.keyOf(agent) == nil; !unlisted {
			c.forgetAgents([]wire.AgentID{agent})
		}
	})
	if err == nil && unlisted {
		err = fmt.Errorf("agent %s is %w", agent, ErrUnlisted)
	}
	return err
}
