package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
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

// foreignMessageCleanup deletes retained messages that are not part of the protocol.
type foreignMessageCleanup struct {
	conn   mqtt.Conn
	topics mqtt.Topics

	nextAt time.Time // of the next; zero while the link is down
	// when the present one ends, unless its end comes back before; zero between two
	endsAt            time.Time
	beaconCellByAgent map[wire.AgentID]string // of the beacons, in the present one
	deletedMessages   ForeignMessagesDeleted
	foundForeign      bool          // the present one has found something, which may not be deleted yet
	backoff           time.Duration // before the next, after those in a row that have found something
}

// startCleanup asks for all that is retained, but for that of filters that were asked for just now. An empty message is
// published after the subscription, and comes back behind it.
func (s *foreignMessageCleanup) startCleanup(now time.Time, filters ...string) {
	s.nextAt, s.endsAt = now.Add(sweepEvery), now.Add(sweepMost)
	s.beaconCellByAgent, s.deletedMessages, s.foundForeign = map[wire.AgentID]string{}, ForeignMessagesDeleted{}, false
	s.conn.Subscribe(mqtt.AtMostOnce, append(filters, s.temporaryFilters()...)...)
	// busy or down: the sweep ends by its time
	_ = s.conn.Publish(mqtt.Message{Topic: s.topics.PeerProbe(), QoS: mqtt.AtMostOnce})
}

// temporaryFilters are the filters that are for the sweep alone. The peers' come last, since its end is behind them.
func (s *foreignMessageCleanup) temporaryFilters() []string {
	return []string{s.topics.AllCoordinatorToAgentFilter(), s.topics.AllBeacons(), s.topics.AllPeers()}
}

// finishCleanup returns what was deleted.
func (s *foreignMessageCleanup) finishCleanup(now time.Time) ForeignMessagesDeleted {
	s.conn.Unsubscribe(s.temporaryFilters()...)
	if s.endsAt = (time.Time{}); !s.foundForeign {
		s.backoff = 0
		return s.deletedMessages
	}
	s.backoff = min(max(2*s.backoff, sweepAgain), sweepEvery)
	s.nextAt = now.Add(s.backoff)
	return s.deletedMessages
}

func (s *foreignMessageCleanup) nextTickAt() (time.Time, bool) {
	if !s.endsAt.IsZero() {
		return s.endsAt, true
	}
	return s.nextAt, !s.nextAt.IsZero()
}

// isProtocolMessage reports whether a message is one that agents have retained: the presence of an agent, or its beacon
// in one cell. All others are told apart by topic.
func (s *foreignMessageCleanup) isProtocolMessage(kind mqtt.TopicKind, agent wire.AgentID, cell string,
	listed bool) bool {
	switch kind {
	case mqtt.KindPresence:
		return listed
	case mqtt.KindBeacon:
		if s.beaconCellByAgent[agent] == "" {
			s.beaconCellByAgent[agent] = cell
		}
		return listed && s.beaconCellByAgent[agent] == cell
	}
	return false
}

// remove deletes a message. A connection that is busy takes no deletion; the next sweep finds the message again.
func (s *foreignMessageCleanup) remove(topic string, agent wire.AgentID) {
	s.foundForeign = true
	if s.conn.Publish(publish.Retained(topic, nil)) != nil {
		return
	}
	if s.deletedMessages.DeletedTopics++; s.deletedMessages.DeletedTopics == 1 {
		s.deletedMessages.ExampleTopic = topic
	}
	i, known := slices.BinarySearch(s.deletedMessages.Agents, agent)
	if !known && len(s.deletedMessages.Agents) < sweepNamed && agent != "" {
		s.deletedMessages.Agents = slices.Insert(s.deletedMessages.Agents, i, agent)
	}
}

// tickCleanup ends a sweep whose end did not come back, or begins one that is due.
func (c *Coordinator) tickCleanup(now time.Time) {
	s := c.foreignMessageCleanup
	switch {
	case !s.endsAt.IsZero() && !now.Before(s.endsAt):
		c.finishCleanup(now)
	case s.endsAt.IsZero() && !s.nextAt.IsZero() && !now.Before(s.nextAt):
		s.startCleanup(now, c.filters()...)
	}
}

// abortCleanup ends a sweep, and the waiting for the next, with the link.
func (c *Coordinator) abortCleanup(now time.Time) {
	if !c.foreignMessageCleanup.endsAt.IsZero() {
		c.finishCleanup(now)
	}
	c.foreignMessageCleanup.nextAt = time.Time{}
}

// finishCleanup ends the present sweep, and tells what was deleted.
func (c *Coordinator) finishCleanup(now time.Time) {
	if found := c.foreignMessageCleanup.finishCleanup(now); found.DeletedTopics > 0 {
		c.cfg.Observer.Observe(found)
	}
}

// handleCleanupMessage takes a message that only a sweep has brought, or that is deleted, and reports whether it was
// one.
func (c *Coordinator) handleCleanupMessage(m mqtt.Message, kind mqtt.TopicKind, agent wire.AgentID, id string) bool {
	switch s := c.foreignMessageCleanup; {
	case kind == mqtt.KindRound || kind == mqtt.KindBlob:
		return false
	case m.Topic == s.topics.PeerProbe():
		if !s.endsAt.IsZero() {
			c.finishCleanup(c.ownerLoop.Now())
		}
		return true
	case m.Retained && len(m.Payload) > 0 && !s.isProtocolMessage(kind, agent, id, agent != "" &&
		c.devices.Key(agent) != nil):
		s.remove(m.Topic, agent)
		return true
	}
	return kind == mqtt.KindPeer || kind == mqtt.KindBeacon || kind == mqtt.KindDirect
}

var foreignRetainedMessages = observe.Counter("foreign_retained_messages_total",
	"Messages that the broker retained and nobody reads, which the coordinator has deleted.")

// ForeignMessagesDeleted: the coordinator deleted messages that the broker retained and that are not part of the
// protocol.
type ForeignMessagesDeleted struct {
	DeletedTopics int
	ExampleTopic  string
	Agents        []wire.AgentID // to whose topics the messages were published, in id order; at most 8
}

// Describe implements observe.Event. The condition lasts until the process ends, since the sender may continue.
func (e ForeignMessagesDeleted) Describe(d *observe.Description) {
	d.Add(foreignRetainedMessages, float64(e.DeletedTopics))
	d.Log(observe.Warn, "foreign retained messages deleted", "topics", e.DeletedTopics, "example", e.ExampleTopic,
		"agents", e.Agents)
	d.Fail("foreign messages", fmt.Sprintf("%d messages that are not part of the protocol were retained at the "+
		"broker, such as %s, and were deleted: a device, or a stranger at a broker without access rules, fills it",
		e.DeletedTopics, e.ExampleTopic),
		"write access rules with `coordinator acl`, or revoke the device with `coordinator devices revoke ID`")
}
