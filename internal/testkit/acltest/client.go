package acltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// marker is the prefix of marker payloads. A broker delivers the messages of one connection in order. A message that
// has not arrived before the marker message was therefore not delivered.
const marker = "end of "

type client struct {
	t *testing.T
	*mqtt.Session
	user    string
	refused []string // subscription filters that the broker has refused
}

func (b Broker) connect(t *testing.T, o mqtt.Options) *client {
	t.Helper()
	return &client{t: t, Session: mqtttest.Dial(t, o), user: o.Username}
}

// as connects to the broker as the given user and returns the client.
func (b Broker) as(t *testing.T, user string) *client {
	t.Helper()
	c := b.connect(t, b.Options(user))
	c.user = user
	return c
}

// ownTopic returns a topic that the user may both read and write.
func ownTopic(user string) string {
	if user == ObserverUser {
		return ObserverUser
	}
	federation, _, _ := strings.Cut(user, "-")
	return "fl/v1/" + federation + "/s/" + user + "/loop"
}

// mark publishes a marker message to a topic. The payload is the prefix marker followed by what.
func (c *client) mark(topic, what string) {
	c.t.Helper()
	mqtttest.Publish(c.t, c, mqtt.Message{Topic: topic, Payload: []byte(marker + what)})
}

// messagesUntilMarker returns the messages that arrive before the marker message with the name what. It skips other
// marker messages, because overlapping subscriptions deliver a marker several times.
func (c *client) messagesUntilMarker(what string) []mqtt.Message {
	c.t.Helper()
	var got []mqtt.Message
	for {
		switch e := mqtttest.Event(c.t, c).(type) {
		case mqtt.MessageReceived:
			if text := string(e.Payload); text == marker+what {
				return got
			} else if !strings.HasPrefix(text, marker) {
				got = append(got, e.Message)
			}
		case mqtt.SubscriptionRefused:
			c.recordRefusal(e.Filter)
		case mqtt.SubscriptionRefusalEnded:
		default:
			c.t.Fatalf("%s: got %#v, want the end of %s", c.user, e, what)
		}
	}
}

// refusals waits until the broker has refused n subscription filters, and returns all refused filters.
func (c *client) refusals(n int) []string {
	c.t.Helper()
	for len(c.refused) < n {
		if e, ok := mqtttest.Event(c.t, c).(mqtt.SubscriptionRefused); ok {
			c.recordRefusal(e.Filter)
		}
	}
	return c.refused
}

// recordRefusal adds the filter to c.refused unless the list contains it already. The session retries a refused filter,
// so the broker can refuse the same filter several times.
func (c *client) recordRefusal(filter string) {
	if !slices.Contains(c.refused, filter) {
		c.refused = append(c.refused, filter)
	}
}

// topics returns the sorted topics, without duplicates, of the messages with the given payload.
func topics(messages []mqtt.Message, payload string) []string {
	var of []string
	for _, m := range messages {
		if string(m.Payload) == payload {
			of = append(of, m.Topic)
		}
	}
	slices.Sort(of)
	return slices.Compact(of)
}

// topicsOfRows returns the sorted topics of all Table entries for which so returns true.
func topicsOfRows(so func(TopicAccess) bool) []string {
	var of []string
	for _, r := range Table {
		if so(r) {
			of = append(of, r.Topic)
		}
	}
	slices.Sort(of)
	return of
}

// compare reports an error for each topic that is in only one of the sorted lists got and want.
func (c *client) compare(what string, got, want []string) {
	c.t.Helper()
	for _, topic := range got {
		if !slices.Contains(want, topic) {
			c.t.Errorf("%s: %s, which must not be: %s", c.user, what, topic)
		}
	}
	for _, topic := range want {
		if !slices.Contains(got, topic) {
			c.t.Errorf("%s: not %s, which must be: %s", c.user, what, topic)
		}
	}
}
