package acltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Broker is a broker under test. It knows Users and ObserverUser, and each may connect only under its own name.
type Broker struct {
	// Options returns the options for connecting as a user.
	Options func(user string) mqtt.Options
	// RefusesFilters is true if the broker refuses a filter that covers topics which the user may not read. Otherwise
	// the broker grants the filter and sends only the readable topics.
	RefusesFilters bool
}

// Run checks every case of the table. The broker must be new, without retained messages.
func Run(t *testing.T, b Broker) {
	t.Run("write", b.testWrite)
	t.Run("read", b.testRead)
	t.Run("will", b.testWill)
	t.Run("client id of another", b.testHijack)
}

// testWrite publishes a retained message to every topic as every user. It checks which messages are delivered and which
// are retained.
func (b Broker) testWrite(t *testing.T) {
	observer := b.as(t, ObserverUser)
	all := func(what string) []mqtt.Message {
		t.Helper()
		observer.Subscribe(mqtt.AtMostOnce, "#")
		observer.mark(ObserverUser, what)
		return observer.messagesUntilMarker(what)
	}
	all("the subscription")
	for _, user := range Users {
		c := b.as(t, user)
		for i, row := range Table {
			mqtttest.Publish(t, c, mqtt.Message{Topic: row.Topic, Payload: []byte(user), QoS: mqtt.QoS(i % 2),
				Retained: true})
		}
		c.mark(ownTopic(user), user)
		may := topicsOfRows(func(r TopicAccess) bool { return r.MayWrite(user) })
		c.compare("delivered", topics(observer.messagesUntilMarker(user), user), may)
		c.compare("retained", topics(all("what "+user+" left"), user), may)
		_ = c.Close()
	}
}

// testRead subscribes to every topic as every user, first to each topic separately and then to all topics at once.
// testRead checks which retained and new messages are delivered.
func (b Broker) testRead(t *testing.T) {
	observer := b.as(t, ObserverUser)
	publish := func(payload string, retained bool) {
		t.Helper()
		for _, row := range Table {
			mqtttest.Publish(t, observer, mqtt.Message{Topic: row.Topic, Payload: []byte(payload), Retained: retained})
		}
	}
	observer.Subscribe(mqtt.AtMostOnce, ObserverUser)
	publish("kept", true)
	observer.mark(ObserverUser, "all that is kept")
	observer.messagesUntilMarker("all that is kept")

	each := topicsOfRows(func(TopicAccess) bool { return true })
	for _, user := range Users {
		may := topicsOfRows(func(r TopicAccess) bool { return r.MayRead(user) })
		for name, filters := range map[string][]string{"each": each, "wildcard": {"fl/v1/#"}, "everything": {"#"}} {
			expected := may
			var refused []string
			if b.RefusesFilters {
				refused = slices.DeleteFunc(slices.Clone(filters),
					func(f string) bool { return slices.Contains(may, f) })
				expected = slices.DeleteFunc(slices.Clone(may),
					func(topic string) bool { return !slices.Contains(filters, topic) && topic != ownTopic(user) })
			}
			c := b.as(t, user)
			c.Subscribe(mqtt.AtMostOnce, filters...)
			c.Subscribe(mqtt.AtMostOnce, ownTopic(user))
			c.mark(ownTopic(user), "what is kept")
			c.compare("received at once by "+name, topics(c.messagesUntilMarker("what is kept"), "kept"),
				withOwn(expected, user))
			publish("live", false)
			observer.mark(ownTopic(user), "what is live")
			c.compare("received by "+name, topics(c.messagesUntilMarker("what is live"), "live"), withOwn(expected,
				user))
			c.compare("refused", c.refusals(len(refused)), refused)
			_ = c.Close()
		}
	}
}

// withOwn returns the expected topics without the user's own topic, unless Table contains that topic. No message was
// published to a topic outside Table.
func withOwn(expected []string, user string) []string {
	if slices.ContainsFunc(Table, func(r TopicAccess) bool { return r.Topic == ownTopic(user) }) {
		return expected
	}
	return slices.DeleteFunc(slices.Clone(expected), func(topic string) bool { return topic == ownTopic(user) })
}

// testWill checks which topics a user's will message may have. A second connection with the same client id ends the
// first connection, whereupon the broker publishes the will.
func (b Broker) testWill(t *testing.T) {
	observer := b.as(t, ObserverUser)
	observer.Subscribe(mqtt.AtMostOnce, "fl/v1/air/p/+", ObserverUser)
	observer.mark(ObserverUser, "the subscription")
	observer.messagesUntilMarker("the subscription")
	const user = "air-press"
	for topic, may := range map[string]bool{"fl/v1/air/p/air-press": true, "fl/v1/air/p/air-press-2": false} {
		o := b.Options(user)
		o.Will = func() mqtt.Message { return mqtt.Message{Topic: topic, Payload: []byte("lost"), Retained: true} }
		first := b.connect(t, o)
		second := b.as(t, user)
		_ = first.Close()
		second.mark("fl/v1/air/p/air-press", topic)
		if got := topics(observer.messagesUntilMarker(topic), "lost"); slices.Contains(got, topic) != may {
			t.Errorf("the will under %s was delivered: %v, want %v", topic, !may, may)
		}
		observer.Subscribe(mqtt.AtMostOnce, topic)
		observer.mark(ObserverUser, "retained messages under "+topic)
		if got := topics(observer.messagesUntilMarker("retained messages under "+topic), "lost"); slices.Contains(got,
			topic) != may {
			t.Errorf("the will under %s was retained: %v, want %v", topic, !may, may)
		}
		_ = second.Close()
	}
}

// testHijack connects with the client id of another user, whose connection must survive. A broker may refuse the
// attempt, or use the user's name as client id.
func (b Broker) testHijack(t *testing.T) {
	victim := b.as(t, "air-press")
	victim.Subscribe(mqtt.AtMostOnce, ownTopic("air-press"))
	victim.mark(ownTopic("air-press"), "the subscription")
	victim.messagesUntilMarker("the subscription")

	o := b.Options("air-press-2")
	o.ClientID = "air-press"
	reason, hijacker := Attempt(t, o)
	if b.RefusesFilters && !strings.Contains(reason, "refused client id air-press") {
		t.Errorf("the attempt ended with %q, want a refusal", reason)
	}
	if hijacker != nil {
		defer func() { _ = hijacker.Close() }()
	}
	victim.mark(ownTopic("air-press"), "the attempt")
	victim.messagesUntilMarker("the attempt")
}
