package coordinator

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A broker retains what it is asked to, and Mosquitto's access rules cannot forbid to ask. So a device could fill it
// with messages that nobody reads. After each connect, and every hour, the coordinator reads what is retained where
// devices may write: their updates, messages and presences, and what is between neighbours, where those meet at this
// broker; and what the coordinator alone says, to one agent. It deletes what is never retained by the protocol, and
// says whose topics those were. Blobs are not looked at: a filter that takes in all of them has the broker send all
// models at once, and lose other messages to the coordinator.
const (
	sweepEvery = time.Hour
	// sweepAgain is the first wait after a sweep that found something: more may have been behind it. It doubles up to
	// sweepEvery, for somebody may go on, or the broker may not delete.
	sweepAgain = 10 * time.Second
	sweepMost  = 30 * time.Second // for the broker to send all that it retains
	sweepNamed = 8                // agents that are named
)

// retainedCleanup deletes retained messages that are not part of the protocol.
type retainedCleanup struct {
	conn   mqtt.Conn
	topics mqtt.Topics

	at    time.Time               // of the next; zero while the link is down
	until time.Time               // when the present one ends, unless its end comes back before; zero between two
	cells map[wire.AgentID]string // of the beacons, in the present one
	found ForeignRetained
	seen  bool          // the present one has found something, which may not be deleted yet
	wait  time.Duration // before the next, after those in a row that have found something
}

// begin asks for all that is retained, but for that of filters that were asked for just now. An empty message is
// published after the subscription, and comes back behind it.
func (s *retainedCleanup) begin(now time.Time, filters ...string) {
	s.at, s.until = now.Add(sweepEvery), now.Add(sweepMost)
	s.cells, s.found, s.seen = map[wire.AgentID]string{}, ForeignRetained{}, false
	s.conn.Subscribe(mqtt.AtMostOnce, append(filters, s.passing()...)...)
	// busy or down: the sweep ends by its time
	_ = s.conn.Publish(mqtt.Message{Topic: s.topics.EndOfPeers(), QoS: mqtt.AtMostOnce})
}

// passing are the filters that are for the sweep alone. The peers' come last, since its end is behind them.
func (s *retainedCleanup) passing() []string {
	return []string{s.topics.AllDirect(), s.topics.AllBeacons(), s.topics.AllPeers()}
}

// end returns what was deleted.
func (s *retainedCleanup) end(now time.Time) ForeignRetained {
	s.conn.Unsubscribe(s.passing()...)
	if s.until = (time.Time{}); !s.seen {
		s.wait = 0
		return s.found
	}
	s.wait = min(max(2*s.wait, sweepAgain), sweepEvery)
	s.at = now.Add(s.wait)
	return s.found
}

func (s *retainedCleanup) deadline() (time.Time, bool) {
	if !s.until.IsZero() {
		return s.until, true
	}
	return s.at, !s.at.IsZero()
}

// belongs reports whether a message is one that agents have retained: the presence of an agent, or its beacon in one
// cell. All others are told apart by topic.
func (s *retainedCleanup) belongs(kind mqtt.Kind, agent wire.AgentID, cell string, listed bool) bool {
	switch kind {
	case mqtt.KindPresence:
		return listed
	case mqtt.KindBeacon:
		if s.cells[agent] == "" {
			s.cells[agent] = cell
		}
		return listed && s.cells[agent] == cell
	}
	return false
}

// remove deletes a message. A connection that is busy takes no deletion; the next sweep finds the message again.
func (s *retainedCleanup) remove(topic string, agent wire.AgentID) {
	s.seen = true
	if s.conn.Publish(retained(topic, nil)) != nil {
		return
	}
	if s.found.Topics++; s.found.Topics == 1 {
		s.found.Example = topic
	}
	i, known := slices.BinarySearch(s.found.Agents, agent)
	if !known && len(s.found.Agents) < sweepNamed && agent != "" {
		s.found.Agents = slices.Insert(s.found.Agents, i, agent)
	}
}

// tickCleanup ends a sweep whose end did not come back, or begins one that is due.
func (c *Coordinator) tickCleanup(now time.Time) {
	s := c.sweep
	switch {
	case !s.until.IsZero() && !now.Before(s.until):
		c.swept(now)
	case s.until.IsZero() && !s.at.IsZero() && !now.Before(s.at):
		s.begin(now, c.filters()...)
	}
}

// leaveSweep ends a sweep, and the waiting for the next, with the link.
func (c *Coordinator) leaveSweep(now time.Time) {
	if !c.sweep.until.IsZero() {
		c.swept(now)
	}
	c.sweep.at = time.Time{}
}

// swept ends the present sweep, and tells what was deleted.
func (c *Coordinator) swept(now time.Time) {
	if found := c.sweep.end(now); found.Topics > 0 {
		c.cfg.Observer.Observe(found)
	}
}

// takeSwept takes a message that only a sweep has brought, or that is deleted, and reports whether it was one.
func (c *Coordinator) takeSwept(m mqtt.Message, kind mqtt.Kind, agent wire.AgentID, id string) bool {
	switch s := c.sweep; {
	case kind == mqtt.KindRound || kind == mqtt.KindBlob:
		return false
	case m.Topic == s.topics.EndOfPeers():
		if !s.until.IsZero() {
			c.swept(c.owner.Now())
		}
		return true
	case m.Retained && len(m.Payload) > 0 && !s.belongs(kind, agent, id, agent != "" && c.keyOf(agent) != nil):
		s.remove(m.Topic, agent)
		return true
	}
	return kind == mqtt.KindPeer || kind == mqtt.KindBeacon || kind == mqtt.KindDirect
}
