// Package cleanup deletes retained messages on topics where the protocol retains none. Mosquitto's access rules cannot
// forbid a device to retain messages, so a device could fill the broker with unused messages.
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
	// repeatDelay is the initial delay after a cleanup that found messages, because more may follow. It doubles up to
	// interval if cleanups continue to find messages.
	repeatDelay = 10 * time.Second
	// maxDuration is the time limit for receiving all retained messages.
	maxDuration = 30 * time.Second
	// maxNamedAgents is the maximum number of agents listed in ForeignMessagesDeleted.
	maxNamedAgents = 8
)

// Config configures a RetainedCleanup.
type Config struct {
	Conn     mqtt.Conn
	Topics   mqtt.Topics
	Observer observe.Observer
	// CoordinatorFilters are the coordinator's own subscriptions to messages of agents. Each cleanup subscribes to them
	// again, so that the broker sends the retained messages.
	CoordinatorFilters []string
	// IsAgentListed reports whether an agent is in the list of agents.
	IsAgentListed func(wire.AgentID) bool
}

// RetainedCleanup deletes retained messages that are not part of the protocol. After each connect and then every hour,
// it reads the retained messages on topics to which devices may publish, and on topics of messages to one agent.
//
// It does not read blobs: with a filter for all blobs, the broker would send all models at once and drop other
// messages. All methods must be called on the owner goroutine.
type RetainedCleanup struct {
	cfg           Config
	nextCleanupAt time.Time // time of the next cleanup; zero while disconnected
	// cleanupEndsAt is the time limit of the current cleanup; zero if no cleanup is active. The cleanup ends earlier if
	// the broker returns the probe message.
	cleanupEndsAt        time.Time
	beaconCellByAgent    map[wire.AgentID]string // last topic levels (cells) of the beacons found in this cleanup
	deletedMessages      ForeignMessagesDeleted
	foundForeignMessages bool          // true if the current cleanup found foreign messages, deleted or not
	nextCleanupDelay     time.Duration // current backoff; zero after a cleanup that found no messages
}

// New returns a RetainedCleanup. The first cleanup starts with LinkUp.
func New(cfg Config) *RetainedCleanup { return &RetainedCleanup{cfg: cfg} }

// LinkUp starts a cleanup after a connect. The caller has just subscribed to the coordinator's own filters.
func (s *RetainedCleanup) LinkUp(now time.Time) { s.startCleanup(now, nil) }

// startCleanup subscribes to all topics to be checked, then publishes a probe message. The broker returns the probe
// message after all retained messages.
func (s *RetainedCleanup) startCleanup(now time.Time, filters []string) {
	s.nextCleanupAt, s.cleanupEndsAt = now.Add(interval), now.Add(maxDuration)
	s.beaconCellByAgent, s.deletedMessages, s.foundForeignMessages = map[wire.AgentID]string{},
		ForeignMessagesDeleted{}, false
	s.cfg.Conn.Subscribe(mqtt.AtMostOnce, slices.Concat(filters, s.temporaryFilters())...)
	// If publishing fails, the cleanup ends after maxDuration.
	_ = s.cfg.Conn.Publish(mqtt.Message{Topic: s.cfg.Topics.PeerPartsProbeTopic(), QoS: mqtt.AtMostOnce})
}

// temporaryFilters returns the topic filters that are used only for cleanups. The filter that matches the probe message
// is last, so that the probe message arrives after all retained messages.
func (s *RetainedCleanup) temporaryFilters() []string {
	return []string{s.cfg.Topics.AllCoordinatorToAgentFilter(), s.cfg.Topics.AllBeaconsFilter(),
		s.cfg.Topics.AllPeerPartsFilter()}
}

// finishCleanup ends the current cleanup, schedules the next cleanup and reports the deleted messages.
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

// LinkDown ends the current cleanup. The next cleanup starts when LinkUp is called.
func (s *RetainedCleanup) LinkDown(now time.Time) {
	if !s.cleanupEndsAt.IsZero() {
		s.finishCleanup(now)
	}
	s.nextCleanupAt = time.Time{}
}

// Deadline returns the time at which Tick must be called next. It returns false if no call is needed.
func (s *RetainedCleanup) Deadline() (time.Time, bool) {
	if !s.cleanupEndsAt.IsZero() {
		return s.cleanupEndsAt, true
	}
	return s.nextCleanupAt, !s.nextCleanupAt.IsZero()
}

// Tick ends a cleanup that has timed out, or starts a cleanup that is due.
func (s *RetainedCleanup) Tick(now time.Time) {
	switch {
	case !s.cleanupEndsAt.IsZero() && !now.Before(s.cleanupEndsAt):
		s.finishCleanup(now)
	case s.cleanupEndsAt.IsZero() && !s.nextCleanupAt.IsZero() && !now.Before(s.nextCleanupAt):
		s.startCleanup(now, s.cfg.CoordinatorFilters)
	}
}

// HandleMessage handles a message that arrived only because of a cleanup, and deletes foreign retained messages. It
// reports whether it handled the message. id is the last level of the topic.
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

// isRetainedByProtocol reports whether the protocol retains a message of this kind. The protocol retains the
// presence message of each listed agent, and its beacon in one cell.
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

// deleteRetainedMessage deletes the retained message of a topic. If the connection is busy, the next cleanup retries.
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

// Metrics lists the metrics of the events in this package.
var Metrics = []*observe.Metric{foreignRetainedMessages}

var foreignRetainedMessages = observe.Counter("foreign_retained_messages_total",
	"Retained messages that are not part of the protocol and were deleted from the broker.")

// ForeignMessagesDeleted reports that the coordinator deleted retained messages that are not part of the protocol.
type ForeignMessagesDeleted struct {
	DeletedTopics int
	ExampleTopic  string
	TopicAgents   []wire.AgentID // agents whose topics were affected, sorted; at most 8
}

// Describe implements observe.Event. The condition lasts until the process ends, because the sender may continue.
func (e ForeignMessagesDeleted) Describe(d *observe.EventDescription) {
	d.AddToCounter(foreignRetainedMessages, float64(e.DeletedTopics))
	d.Log(observe.Warn, "deleted retained messages of unknown origin from the broker", "topics", e.DeletedTopics,
		"example",
		e.ExampleTopic,
		"agents", e.TopicAgents)
	d.RaiseCondition("foreign messages",
		fmt.Sprintf("%d retained messages that are not part of the protocol, such as %s, were deleted from the "+
			"broker: a device, or an unknown client of a broker without access rules, published them",
			e.DeletedTopics, e.ExampleTopic),
		"generate access rules for the broker with `coordinator acl`, "+
			"or revoke the device with `coordinator devices revoke ID`")
}
