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

// unheard counts the answers to devices that are not heard.
type unheard struct {
	told  map[wire.AgentID]time.Time // at most twice unheardMost
	since time.Time                  // when counting began
	count int
}

// may reports whether a device may be told now, and counts that.
func (u *unheard) may(agent wire.AgentID, now time.Time) bool {
	if now.Sub(u.since) >= unheardEvery {
		u.since, u.count = now, 0
		maps.DeleteFunc(u.told, func(_ wire.AgentID, at time.Time) bool { return now.Sub(at) >= unheardEvery })
	}
	if at, told := u.told[agent]; u.count == unheardMost || told && now.Sub(at) < unheardEvery {
		return false
	}
	u.told[agent] = now
	u.count++
	return true
}

// tellUnheard answers a hello, a presence or a report that is not used, which need not be its agent's. A retained one
// may have been said long ago, and the broker says an agent's last one, that it is lost: nobody hears an answer to it.
func (c *Coordinator) tellUnheard(agent wire.AgentID, e *wire.Envelope, m mqtt.Message, reason wire.UnheardReason) {
	sealed := e.Type == wire.TypeSealed && m.Topic == c.cfg.Topics.Status(agent) // a hello, or a report
	if m.Retained || e.Type != wire.TypeHello && e.Type != wire.TypePresence && e.Type != wire.TypeReport && !sealed ||
		lastWords(e) || !c.unheard.may(agent, c.owner.Now()) {
		return
	}
	answer := wire.Unheard{Answers: sha256.Sum256(m.Payload[:wire.HeaderSize]), Reason: reason}
	c.tell(agent, wire.TypeUnheard, 0, 0, answer.Body())
	c.cfg.Observer.Observe(AgentUnheard{Agent: agent, Reason: reason})
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
