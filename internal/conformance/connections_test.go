package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// connector returns an established connection for a client.
type connector func(t *testing.T, client string) mqtt.Conn

// TestConnectionsInMemory runs the tests of mqtt.Conn on the in-memory broker, which replaces real brokers in most
// tests.
func TestConnectionsInMemory(t *testing.T) {
	b := memory.New(memory.Options{})
	conform(t, subject{}, func(t *testing.T, client string) mqtt.Conn {
		c := b.Connect(client, nil)
		t.Cleanup(func() { _ = c.Close() })
		mqtttest.WantUp(t, c)
		return c
	})
}

// testConnections checks an implementation of mqtt.Conn against the requirements of that interface.
func testConnections(t *testing.T, s subject) {
	b := s.start(t, needs{})
	users := map[string]string{}
	conform(t, s, func(t *testing.T, client string) mqtt.Conn {
		if users[client] == "" {
			users[client] = anyOne(len(users))
		}
		return mqtttest.Dial(t, b.as(users[client]))
	})
}

func conform(t *testing.T, s subject, connect connector) {
	for _, c := range []struct {
		name string
		test func(*testing.T, connector)
	}{
		{"retained", func(t *testing.T, c connector) { conformRetained(t, s, c) }},
		{"deleted", func(t *testing.T, c connector) { conformDeleted(t, s, c) }},
		{"wildcards", conformWildcards},
		{"overlap", conformOverlap},
		{"order", conformOrder},
		{"unsubscribe", conformUnsubscribe},
		{"again", conformAgain},
		{"many filters", conformManyFilters},
		{"large", conformLarge},
		{"qos", conformQoS},
		{"ownership", conformOwnership},
		{"invalid", conformInvalid},
		{"closed", conformClosed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, connect) })
	}
}

func conformRetained(t *testing.T, s subject, connect connector) {
	a, b := connect(t, "a"), connect(t, "b")
	b.Subscribe(mqtt.AtLeastOnce, "retained/1")
	mqtttest.SyncWithBroker(t, b)
	mqtttest.Publish(t, a, mqtt.Message{Topic: "retained/1", Payload: []byte("kept"), QoS: mqtt.AtLeastOnce,
		Retained: true})
	if m := mqtttest.Received(t, b); m.Retained || string(m.Payload) != "kept" {
		t.Errorf("who is there already got %+v, want it not marked as retained", m)
	}
	late := connect(t, "late")
	mqtttest.SettleRetained(t, a, late)
	late.Subscribe(mqtt.AtLeastOnce, "retained/+")
	mqtttest.Publish(t, late, mqtt.Message{Topic: "retained/none"})
	m := mqtttest.Received(t, late)
	s.saw(t, wildcards, yesIf(m.Retained))
	if !m.Retained {
		late.Unsubscribe("retained/+")
		late.Subscribe(mqtt.AtLeastOnce, "retained/1")
		m = mqtttest.Received(t, late)
	}
	if !m.Retained || m.Topic != "retained/1" || string(m.Payload) != "kept" {
		t.Errorf("late subscriber got %+v", m)
	}
}

// subscribeAll subscribes to the topics that match a wildcard. If the broker does not serve wildcards, it subscribes to
// each topic by name.
func (s subject) subscribeAll(t *testing.T, c mqtt.Conn, wildcard string, topics ...string) {
	t.Helper()
	if s.known(wildcards) == no {
		c.Subscribe(mqtt.AtLeastOnce, wildcard)
		mqtttest.SyncWithBroker(t, c)
		c.Unsubscribe(wildcard)
		c.Subscribe(mqtt.AtLeastOnce, topics...)
		return
	}
	c.Subscribe(mqtt.AtLeastOnce, wildcard)
}

func conformDeleted(t *testing.T, s subject, connect connector) {
	a := connect(t, "a")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "deleted/1", Payload: []byte("1"), Retained: true})
	mqtttest.Publish(t, a, mqtt.Message{Topic: "deleted/2", Payload: []byte("2"), Retained: true})
	mqtttest.Publish(t, a, mqtt.Message{Topic: "deleted/1", Retained: true})
	mqtttest.SettleRetained(t, a, a)
	s.subscribeAll(t, a, "deleted/+", "deleted/1", "deleted/2")
	if m := mqtttest.Received(t, a); m.Topic != "deleted/2" {
		t.Errorf("got %+v", m)
	}
	mqtttest.SyncWithBroker(t, a)
}

func conformWildcards(t *testing.T, connect connector) {
	a, b := connect(t, "a"), connect(t, "b")
	b.Subscribe(mqtt.AtMostOnce, "w/+/z", "w/deep/#")
	mqtttest.SyncWithBroker(t, b)
	for _, topic := range []string{"w/1/z", "w/1/y", "w/1/z/2", "w/deep", "w/deep/er/still", "v/deep", "w//z",
		"w/end/z"} {
		mqtttest.Publish(t, a, mqtt.Message{Topic: topic})
	}
	for _, want := range []string{"w/1/z", "w/deep", "w/deep/er/still", "w//z", "w/end/z"} {
		if m := mqtttest.Received(t, b); m.Topic != want {
			t.Errorf("got %s, want %s", m.Topic, want)
		}
	}
}

// conformOverlap checks that a message that matches two subscribed filters is received. The broker may choose the
// number of copies and their quality of service.
func conformOverlap(t *testing.T, connect connector) {
	a := connect(t, "a")
	a.Subscribe(mqtt.AtMostOnce, "overlap/+")
	a.Subscribe(mqtt.AtLeastOnce, "overlap/#")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "overlap/1", QoS: mqtt.AtLeastOnce})
	mqtttest.Publish(t, a, mqtt.Message{Topic: "overlap/2", QoS: mqtt.AtLeastOnce})
	if m := mqtttest.Received(t, a); m.Topic != "overlap/1" {
		t.Errorf("got %s", m.Topic)
	}
	for mqtttest.Received(t, a).Topic != "overlap/2" {
	}
}

func conformOrder(t *testing.T, connect connector) {
	const n = 300
	a, b := connect(t, "a"), connect(t, "b")
	b.Subscribe(mqtt.AtMostOnce, "order/#")
	mqtttest.SyncWithBroker(t, b)
	for i := range n {
		mqtttest.Publish(t, a, mqtt.Message{Topic: "order/" + strconv.Itoa(i%3), Payload: []byte(strconv.Itoa(i))})
	}
	for i := range n {
		if m := mqtttest.Received(t, b); string(m.Payload) != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
	}
}

func conformUnsubscribe(t *testing.T, connect connector) {
	a := connect(t, "a")
	a.Subscribe(mqtt.AtMostOnce, "un/1", "un/2")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "un/1"})
	if m := mqtttest.Received(t, a); m.Topic != "un/1" {
		t.Errorf("got %s", m.Topic)
	}
	a.Unsubscribe("un/1", "un/never")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "un/1"})
	mqtttest.Publish(t, a, mqtt.Message{Topic: "un/2"})
	if m := mqtttest.Received(t, a); m.Topic != "un/2" {
		t.Errorf("got %s after unsubscribing", m.Topic)
	}
}

func conformAgain(t *testing.T, connect connector) {
	a := connect(t, "a")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "again", Payload: []byte("kept"), Retained: true})
	mqtttest.SettleRetained(t, a, a)
	for range 3 {
		a.Subscribe(mqtt.AtMostOnce, "again")
		if m := mqtttest.Received(t, a); !m.Retained {
			t.Errorf("got %+v", m)
		}
	}
}

func conformManyFilters(t *testing.T, connect connector) {
	const n = 30
	a := connect(t, "a")
	var filters []string
	for i := range n {
		filters = append(filters, fmt.Sprintf("many/%d", i))
	}
	a.Subscribe(mqtt.AtLeastOnce, filters...)
	for _, topic := range filters {
		mqtttest.Publish(t, a, mqtt.Message{Topic: topic})
		if m := mqtttest.Received(t, a); m.Topic != topic {
			t.Fatalf("got %s, want %s", m.Topic, topic)
		}
	}
}

func conformLarge(t *testing.T, connect connector) {
	a := connect(t, "a")
	payload := bytes.Repeat([]byte("0123456789abcdef"), 60<<10/16)
	a.Subscribe(mqtt.AtMostOnce, "large")
	mqtttest.Publish(t, a, mqtt.Message{Topic: "large", Payload: bytes.Clone(payload)})
	if m := mqtttest.Received(t, a); !bytes.Equal(m.Payload, payload) {
		t.Errorf("got %d bytes, or other ones", len(m.Payload))
	}
}

func conformQoS(t *testing.T, connect connector) {
	a := connect(t, "a")
	a.Subscribe(mqtt.AtMostOnce, "qos/0")
	a.Subscribe(mqtt.AtLeastOnce, "qos/1")
	for _, c := range []struct {
		topic      string
		sent, want mqtt.QoS
	}{
		{"qos/0", mqtt.AtLeastOnce, mqtt.AtMostOnce},
		{"qos/1", mqtt.AtMostOnce, mqtt.AtMostOnce},
		{"qos/1", mqtt.AtLeastOnce, mqtt.AtLeastOnce},
	} {
		mqtttest.Publish(t, a, mqtt.Message{Topic: c.topic, QoS: c.sent})
		if m := mqtttest.Received(t, a); m.QoS != c.want {
			t.Errorf("%s sent with QoS %d: got %d, want %d", c.topic, c.sent, m.QoS, c.want)
		}
	}
}

// conformOwnership checks requirement R16: a received payload belongs to its receiver alone, so the receiver may change
// it.
func conformOwnership(t *testing.T, connect connector) {
	a, b, c := connect(t, "a"), connect(t, "b"), connect(t, "c")
	for _, s := range []mqtt.Conn{b, c} {
		s.Subscribe(mqtt.AtMostOnce, "own")
		mqtttest.SyncWithBroker(t, s)
	}
	mqtttest.Publish(t, a, mqtt.Message{Topic: "own", Payload: []byte("same"), Retained: true})
	clear(mqtttest.Received(t, b).Payload)
	if m := mqtttest.Received(t, c); string(m.Payload) != "same" {
		t.Errorf("another got %q", m.Payload)
	}
	late := connect(t, "late")
	late.Subscribe(mqtt.AtMostOnce, "own")
	if m := mqtttest.Received(t, late); string(m.Payload) != "same" {
		t.Errorf("a late one got %q", m.Payload)
	}
}

func conformInvalid(t *testing.T, connect connector) {
	a := connect(t, "a")
	for _, m := range []mqtt.Message{{Topic: ""}, {Topic: "a/+"}, {Topic: "a\x00"}, {Topic: "a", QoS: 2}} {
		if err := a.Publish(m); err == nil {
			t.Errorf("published %+v", m)
		}
	}
	a.Subscribe(mqtt.AtMostOnce, "a/#/b")
	if e := mqtttest.Event(t, a); e != (mqtt.SubscriptionRefused{Filter: "a/#/b", SubackCode: mqtt.SubackFailure}) {
		t.Errorf("got %#v", e)
	}
	mqtttest.SyncWithBroker(t, a)
}

func conformClosed(t *testing.T, connect connector) {
	a := connect(t, "a")
	for range 2 {
		if err := a.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if e, open := <-a.Events(); open {
		t.Errorf("got %#v after Close", e)
	}
	if err := a.Publish(mqtt.Message{Topic: "closed"}); !errors.Is(err, mqtt.ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	a.Subscribe(mqtt.AtMostOnce, "closed")
	a.Unsubscribe("closed")
}
