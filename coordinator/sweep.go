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
// broker. It deletes what agents never have retained, and says whose topics those were.
const (
	sweepEvery = time.Hour
	sweepAgain = 10 * time.Second // after a sweep that deleted something: more may have been behind it
	sweepMost  = 30 * time.Second // for the broker to send all that it retains
	sweepNamed = 8                // agents that are named
)

// sweep deletes foreign retained messages.
type sweep struct {
	conn   mqtt.Conn
	topics mqtt.Topics

	at    time.Time               // of the next; zero while the link is down
	until time.Time               // when the present one ends, unless its end comes back before; zero between two
	cells map[wire.AgentID]string // of the beacons, in the present one
	found ForeignRetained
}

// begin asks for all that is retained, but for that of filters that were asked for just now. An empty message is
// published after the subscription, and comes back behind it.
func (s *sweep) begin(now time.Time, filters ...string) {
	s.at, s.until = now.Add(sweepEvery), now.Add(sweepMost)
	s.cells, s.found = map[wire.AgentID]string{}, ForeignRetained{}
	s.conn.Subscribe(mqtt.AtMostOnce, append(filters, s.topics.AllPeers(), s.topics.AllBeacons())...)
	// busy or down: the sweep ends by its time
	_ = s.conn.Publish(mqtt.Message{Topic: s.topics.EndOfPeers(), QoS: mqtt.AtMostOnce})
}

// end returns what was deleted.
func (s *sweep) end(now time.Time) ForeignRetained {
	s.conn.Unsubscribe(s.topics.AllPeers(), s.topics.AllBeacons())
	if s.until = (time.Time{}); s.found.Topics > 0 {
		s.at = now.Add(sweepAgain)
	}
	return s.found
}

func (s *sweep) disconnected(now time.Time) {
	if !s.until.IsZero() {
		s.end(now)
	}
	s.at = time.Time{}
}

func (s *sweep) deadline() (time.Time, bool) {
	if !s.until.IsZero() {
		return s.until, true
	}
	return s.at, !s.at.IsZero()
}

// belongs reports whether a message is one that agents have retained: the presence of an agent, or its beacon in one
// cell. All others are told apart by topic.
func (s *sweep) belongs(kind mqtt.Kind, agent wire.AgentID, cell string, listed bool) bool {
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
func (s *sweep) remove(topic string, agent wire.AgentID) {
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

// tickSweep ends a sweep whose end did not come back, or begins one that is due.
func (c *Coordinator) tickSweep(now time.Time) {
	s := c.sweep
	switch {
	case !s.until.IsZero() && !now.Before(s.until):
		c.swept(now)
	case s.until.IsZero() && !s.at.IsZero() && !now.Before(s.at):
		s.begin(now, c.filters()...)
	}
}

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
	return kind == mqtt.KindPeer || kind == mqtt.KindBeacon
}
