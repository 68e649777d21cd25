// Package cleanup deletes messages that the broker retains although the protocol retains none on their topics.
// Mosquitto's access rules cannot forbid a device to have a message retained, so a device could fill the broker with
// messages that nobody reads.
package cleanup

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	// interval is the time between two cleanups.
	interval = time.Hour
	// repeatDelay is the first wait after a cleanup that found something, since more may have been behind it. It
	// doubles up to interval: the sender may continue, or the broker may not delete.
	repeatDelay = 10 * time.Second
	// maxDuration limits the time in which the broker sends everything that it retains.
	maxDuration = 30 * time.Second
	// maxNamedAgents limits the agents in ForeignMessagesDeleted.
	maxNamedAgents = 8
)

// Config is the part's access to the coordinator.
type Config struct {
	Conn     mqtt.Conn
	Topics   mqtt.Topics
	Observer observe.Observer
	// CoordinatorFilters are the coordinator's own subscriptions to what agents send. They are made again for each
	// cleanup, so that the broker sends what it retains.
	CoordinatorFilters []string
	// IsAgentListed reports whether an agent is in the list.
	IsAgentListed func(wire.AgentID) bool
}

// RetainedCleanup reads, after each connect and then every hour, what the broker retains on topics to which devices may
// publish (their updates, messages and presences, and messages between neighbours that share this broker) and on the
// topics of messages to one agent. It deletes what the protocol never retains. Blobs are not read: a filter for all of
// them would have the broker send all models at once, and lose other messages to the coordinator. All methods are
// called on the owner's goroutine.
type RetainedCleanup struct {
	cfg           Config
	nextCleanupAt time.Time // zero while the link is down
	// cleanupEndsAt is when the present cleanup ends unless the broker returns the probe before; zero between two.
	cleanupEndsAt        time.Time
	beaconCellByAgent    map[wire.AgentID]string // of the beacons that the present cleanup has read
	deletedMessages      ForeignMessagesDeleted
	foundForeignMessages bool          // the present cleanup has found something, deleted or not
	nextCleanupDelay     time.Duration // the next wait, after cleanups in a row that have found something
}

// New makes the part.
func New(cfg Config) *RetainedCleanup { return &RetainedCleanup{cfg: cfg} }

// LinkUp begins a cleanup. The coordinator has just subscribed to its own filters.
func (s *RetainedCleanup) LinkUp(now time.Time) { s.startCleanup(now, nil) }

// startCleanup subscribes to everything that is retained. A probe is published after the subscriptions, and comes back
// last.
func (s *RetainedCleanup) startCleanup(now time.Time, filters []string) {
	s.nextCleanupAt, s.cleanupEndsAt = now.Add(interval), now.Add(maxDuration)
	s.beaconCellByAgent, s.deletedMessages, s.foundForeignMessages = map[wire.AgentID]string{},
		ForeignMessagesDeleted{}, false
	s.cfg.Conn.Subscribe(mqtt.AtMostOnce, slices.Concat(filters, s.temporaryFilters())...)
	// if the connection is busy or down, the cleanup ends by its time
	_ = s.cfg.Conn.Publish(mqtt.Message{Topic: s.cfg.Topics.PeerPartsProbeTopic(), QoS: mqtt.AtMostOnce})
}

// temporaryFilters are the filters for the cleanup alone. The probe is behind the neighbours' messages, so their filter
// is the last one.
func (s *RetainedCleanup) temporaryFilters() []string {
	return []string{s.cfg.Topics.AllCoordinatorToAgentFilter(), s.cfg.Topics.AllBeaconsFilter(),
		s.cfg.Topics.AllPeerPartsFilter()}
}

// finishCleanup ends the present cleanup, and reports the deleted messages.
func (s *RetainedCleanup) finishCleanup(now time.Time) {
	s.cfg.Conn.Unsubscribe(s.temporaryFilters()...)
	s.cleanupEndsAt = time.Time{}
	if s.foundForeignMessages {
		s.nextCleanupDelay = min(max(2*s.nextCleanupDelay, repeatDelay), interval)
		s.nextCleanupAt = now.Add(s.nextCleanupDelay)
	} else {
		s.nextCleanupDelay = 0
	}
	if s.deletedMessages.DeletedTopics > 0 {
		s.cfg.Observer.Observe(s.deletedMessages)
	}
}

// LinkDown ends the present cleanup. None begins until LinkUp.
func (s *RetainedCleanup) LinkDown(now time.Time) {
	if !s.cleanupEndsAt.IsZero() {
		s.finishCleanup(now)
	}
	s.nextCleanupAt = time.Time{}
}

// Deadline returns when Tick has something to do.
func (s *RetainedCleanup) Deadline() (time.Time, bool) {
	if !s.cleanupEndsAt.IsZero() {
		return s.cleanupEndsAt, true
	}
	return s.nextCleanupAt, !s.nextCleanupAt.IsZero()
}

// Tick ends a cleanup whose probe has not come back, or begins one that is due.
func (s *RetainedCleanup) Tick(now time.Time) {
	switch {
	case !s.cleanupEndsAt.IsZero() && !now.Before(s.cleanupEndsAt):
		s.finishCleanup(now)
	case s.cleanupEndsAt.IsZero() && !s.nextCleanupAt.IsZero() && !now.Before(s.nextCleanupAt):
		s.startCleanup(now, s.cfg.CoordinatorFilters)
	}
}

// HandleMessage handles a message that only a cleanup has brought, or that is deleted, and reports whether it was one.
// id is the last part of the topic.
func (s *RetainedCleanup) HandleMessage(now time.Time, m mqtt.Message, kind mqtt.TopicKind, agent wire.AgentID,
	id string) bool {
	switch {
	case kind == mqtt.KindAnnouncement || kind == mqtt.KindBlob:
		return false
	case m.Topic == s.cfg.Topics.PeerPartsProbeTopic():
		if !s.cleanupEndsAt.IsZero() {
			s.finishCleanup(now)
		}
		return true
	case m.Retained && len(m.Payload) > 0 && !s.isRetainedByProtocol(kind, agent, id, agent != "" &&
		s.cfg.IsAgentListed(agent)):
		s.deleteRetainedMessage(m.Topic, agent)
		return true
	}
	return kind == mqtt.KindPeer || kind == mqtt.KindBeacon || kind == mqtt.KindCoordinatorToAgent
}

// isRetainedByProtocol reports whether the protocol retains a message: the presence of an agent, or its beacon in one
// cell.
func (s *RetainedCleanup) isRetainedByProtocol(kind mqtt.TopicKind, agent wire.AgentID, cell string,
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

// deleteRetainedMessage deletes a message. If the connection is busy, the next cleanup finds the message again.
func (s *RetainedCleanup) deleteRetainedMessage(topic string, agent wire.AgentID) {
	s.foundForeignMessages = true
	if s.cfg.Conn.Publish(publish.RetainedMessage(topic, nil)) != nil {
		return
	}
	if s.deletedMessages.DeletedTopics++; s.deletedMessages.DeletedTopics == 1 {
		s.deletedMessages.ExampleTopic = topic
	}
	i, known := slices.BinarySearch(s.deletedMessages.TopicAgents, agent)
	if !known && len(s.deletedMessages.TopicAgents) < maxNamedAgents && agent != "" {
		s.deletedMessages.TopicAgents = slices.Insert(s.deletedMessages.TopicAgents, i, agent)
	}
}

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{foreignRetainedMessages}

var foreignRetainedMessages = observe.Counter("foreign_retained_messages_total",
	"Unused retained messages that the coordinator deleted from the broker.")

// ForeignMessagesDeleted: the coordinator deleted messages that the broker retained and that are not part of the
// protocol.
type ForeignMessagesDeleted struct {
	DeletedTopics int
	ExampleTopic  string
	TopicAgents   []wire.AgentID // to whose topics the messages were published, in id order; at most 8
}

// Describe implements observe.Event. The condition lasts until the process ends, since the sender may continue.
func (e ForeignMessagesDeleted) Describe(d *observe.EventDescription) {
	d.AddToCounter(foreignRetainedMessages, float64(e.DeletedTopics))
	d.Log(observe.Warn, "foreign retained messages deleted", "topics", e.DeletedTopics, "example",
		e.ExampleTopic,
		"agents", e.TopicAgents)
	d.RaiseCondition("foreign messages",
		fmt.Sprintf("%d messages that are not part of the protocol were retained at the "+
			"broker, such as %s, and were deleted: a device, or a stranger at a broker without access rules, fills it",
			e.DeletedTopics, e.ExampleTopic),
		"write access rules with `coordinator acl`, or revoke the device with `coordinator devices revoke ID`")
}
