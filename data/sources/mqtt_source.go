package sources

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/mqtt"
)

// An MQTT source subscribes to topics of a broker of the site. The messages contain readings. A retained message
// without its own time is rejected, because its age is unknown. The source publishes nothing except requests for birth
// messages of Sparkplug nodes, if the configuration allows them.

// TopicFilters returns the topic filters to which the source of a validated section subscribes.
func TopicFilters(c *data.Config) []string {
	all, _ := parseTopicSubscriptions(c) // the section was validated before
	return topicSubscriptions(all).topicFilters()
}

func openMQTT(c *data.Config) (data.Source, error) {
	s, err := parseTopicSubscriptions(c)
	return &collectorSource{intake: topicSubscriptions(s), rules: rows.ValueRulesFromConfig(c, nil),
		rowStorage: rows.StorageSettingsFromConfig(c)}, err
}

// topicSubscriptions is the readingIntake of an MQTT source.
type topicSubscriptions []topicSubscription

// probe always returns nil, because the doctor command checks the broker.
func (topicSubscriptions) probe() error { return nil }

func (all topicSubscriptions) beginIntake(r *readingRecorder) (end func() error, err error) {
	for i := range all {
		all[i].addReading, all[i].stats = r.recordReading, r.stats
		for _, c := range all[i].columns {
			if len(c.nameLevels) == 0 && !all[i].isAvailability {
				r.stats.expectInput(c.input, " from topic "+all[i].topicFilter)
			}
		}
	}
	conn, err := r.env.ConnectBroker(func(t mqtt.ObservedMessage) {
		if t.IsIncoming && t.IsDropped {
			problem := "messages arrived faster than they could be processed"
			if t.ExceededSizeLimit > 0 {
				problem = fmt.Sprintf("the message has %d bytes, which exceeds the limit of %d", t.OversizedPacketSize,
					t.ExceededSizeLimit)
				r.stats.recordOversizedMessage(t.Topic, t.OversizedPacketSize, t.ExceededSizeLimit)
			}
			all.forEachMatchingSubscription(t.Topic, func(s *topicSubscription) {
				s.rejectPayload(grid.ReasonNoRoom,
					problem, t.Topic)
			})
		}
	})
	if err != nil {
		return nil, err
	}
	r.stats.setInitialTrouble(data.TroubleBroker, "not yet connected to the site's MQTT broker")
	conn.Subscribe(mqtt.AtMostOnce, all.topicFilters()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range conn.Events() {
			all.handleConnectionEvent(r, conn, e)
		}
	}()
	return func() error {
		err := conn.Close()
		<-done
		return err
	}, nil
}

// topicFilters returns the filters of all subscriptions, sorted and without duplicates.
func (all topicSubscriptions) topicFilters() []string {
	filters := make([]string, len(all))
	for i, s := range all {
		filters[i] = s.topicFilter
	}
	slices.Sort(filters)
	return slices.Compact(filters)
}

func (all topicSubscriptions) forEachMatchingSubscription(topic string, do func(*topicSubscription)) {
	for i := range all {
		if mqtt.FilterMatchesTopic(all[i].topicFilter, topic) {
			do(&all[i])
		}
	}
}

// handleConnectionEvent processes an event of the connection.
func (all topicSubscriptions) handleConnectionEvent(r *readingRecorder, conn mqtt.Conn, e mqtt.Event) {
	switch e := e.(type) {
	case mqtt.MessageReceived:
		from := payloadMeta{e.Topic, topicHash(e.Topic), r.env.Now(), e.Retained}
		all.forEachMatchingSubscription(e.Topic, func(s *topicSubscription) {
			c := s.parsePayload(e.Payload, from)
			if p := c.NodeProblem; p != nil {
				r.handleNodeProblem(conn, p)
			}
		})
	case mqtt.LinkUp:
		r.stats.setTrouble(data.TroubleBroker, "", nil)
	case mqtt.LinkDown:
		r.stats.clearTroubles(data.TroubleBroker) // a lost connection ends all refusals
		r.stats.setTrouble(data.TroubleBroker, "", fmt.Errorf("not connected to the site's MQTT broker: %w", e.Err))
	case mqtt.SubscriptionRefused:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, fmt.Errorf(
			"the site's MQTT broker refuses the subscription to %s", e.Filter))
	case mqtt.SubscriptionRefusalEnded:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, nil)
	}
}

// handleNodeProblem reports the state of a Sparkplug node. If the decoder provides a command, it sends the command.
func (r *readingRecorder) handleNodeProblem(conn mqtt.Conn, p *payload.NodeProblem) {
	var err error
	if p.Problem != "" {
		err = errors.New(p.Problem)
	}
	if p.CommandTopic != "" {
		if sent := conn.Publish(mqtt.Message{Topic: p.CommandTopic, Payload: p.Command}); sent != nil {
			err = fmt.Errorf("%w; the births cannot be requested: %w", err, sent)
		}
	}
	r.stats.setNodeTrouble(p.Node, err)
}
