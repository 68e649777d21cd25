package acltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// marker begins the payload of a message that ends what is looked at: a broker
// handles the packets of a connection in order, and so what is not there when
// the marker comes will not come any more.
const marker = "end of "

type client struct {
	t *testing.T
	*mqtt.Session
	user    string
	refused []string // filters
}

// connect returns a client that is up.
func (b Broker) connect(t *testing.T, o mqtt.Options) *client {
	t.Helper()
	return &client{t: t, Session: mqtttest.Dial(t, o), user: o.Username}
}

// as connects a user.
func (b Broker) as(t *testing.T, user string) *client {
	t.Helper()
	c := b.connect(t, b.Options(user))
	c.user = user
	return c
}

// ownTopic is a topic that a user may both write and read.
func ownTopic(user string) string {
	if user == ObserverUser {
		return ObserverUser
	}
	federation, _, _ := strings.Cut(user, "-")
	return "fl/v1/" + federation + "/s/" + user + "/loop"
}

// mark publishes the marker of something to a topic.
func (c *client) mark(topic, what string) {
	c.t.Helper()
	mqtttest.Publish(c.t, c, mqtt.Message{Topic: topic, Payload: []byte(marker + what)})
}

// messagesUntilMarker returns the messages before the marker of something, without the
// copies of earlier markers that overlapping subscriptions bring.
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

// refusals waits for a number of refused filters, and returns all so far: a
// session tells of them beside the messages, in no order.
func (c *client) refusals(n int) []string {
	c.t.Helper()
	for len(c.refused) < n {
		if e, ok := mqtttest.Event(c.t, c).(mqtt.SubscriptionRefused); ok {
			c.recordRefusal(e.Filter)
		}
	}
	return c.refused
}

// recordRefusal takes note of a filter; a session asks for it again, and tells of each refusal.
func (c *client) recordRefusal(filter string) {
	if !slices.Contains(c.refused, filter) {
		c.refused = append(c.refused, filter)
	}
}

// topics returns the topics of the messages with a payload, each once, sorted.
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

// topicsOfRows returns the topics of the rows that are so, sorted.
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

// compare reports the differences between two sorted sets of topics.
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
