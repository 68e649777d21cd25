// Package mqtttest provides helpers for tests of MQTT sessions. The helpers open a session, receive the next event or
// message, and wait until the broker has processed earlier requests.
package mqtttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Patience is the timeout of each wait for an event of a session.
const Patience = time.Minute

// Dial opens an MQTT session and waits until it is connected. The session is closed at the end of the test.
func Dial(t testing.TB, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	WantUp(t, s)
	return s
}

// Event returns the next event of the connection. It fails the test if no event arrives within Patience.
func Event(t testing.TB, c mqtt.Conn) mqtt.Event {
	t.Helper()
	return within(t, c, Patience)
}

func within(t testing.TB, c mqtt.Conn, limit time.Duration) mqtt.Event {
	t.Helper()
	select {
	case e := <-c.Events():
		return e
	case <-time.After(limit):
		t.Fatalf("no event in %v", limit)
		return nil
	}
}

// Received returns the next message. It fails the test if the next event is not a message.
func Received(t testing.TB, c mqtt.Conn) mqtt.Message {
	t.Helper()
	return ReceivedWithin(t, c, Patience)
}

// ReceivedWithin returns the next message. It fails the test if the next event is not a message or does not arrive
// within limit.
func ReceivedWithin(t testing.TB, c mqtt.Conn, limit time.Duration) mqtt.Message {
	t.Helper()
	e := within(t, c, limit)
	r, ok := e.(mqtt.MessageReceived)
	if !ok {
		t.Fatalf("got %#v, want a message", e)
	}
	return r.Message
}

// WantUp fails the test if the next event of the connection is not LinkUp.
func WantUp(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e := Event(t, c); e != (mqtt.LinkUp{}) {
		t.Fatalf("got %#v, want Up", e)
	}
}

// WantDown fails the test if the next event of the connection is not LinkDown with a non-nil error.
func WantDown(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e, ok := Event(t, c).(mqtt.LinkDown); !ok || e.Err == nil {
		t.Fatalf("got %#v, want Down with an error", e)
	}
}

// Publish publishes the message m. It fails the test if the session rejects the message.
func Publish(t testing.TB, c mqtt.Conn, m mqtt.Message) {
	t.Helper()
	if err := c.Publish(m); err != nil {
		t.Fatalf("publish to %s: %v", m.Topic, err)
	}
}

// SyncWithBroker waits until the broker has processed all packets that c has sent. It publishes a message to itself,
// because a broker processes the packets of a connection in order.
func SyncWithBroker(t testing.TB, c mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle/%p", c)
	c.Subscribe(mqtt.AtMostOnce, topic)
	Publish(t, c, mqtt.Message{Topic: topic})
	if m := Received(t, c); m.Topic != topic {
		t.Fatalf("got a message on %s, want the test's own", m.Topic)
	}
	c.Unsubscribe(topic)
}

// SettleRetained waits until the reader's broker has stored all retained messages that writer has published so far. In
// a cluster a retained message reaches the other brokers with a delay. A client that subscribes during this delay does
// not receive the message.
func SettleRetained(t testing.TB, writer, reader mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle-retained/%p", reader)
	Publish(t, writer, mqtt.Message{Topic: topic, Payload: []byte("settled"), Retained: true})
	late := time.After(Patience)
	for {
		reader.Subscribe(mqtt.AtMostOnce, topic)
		select {
		case e := <-reader.Events():
			if r, ok := e.(mqtt.MessageReceived); !ok || r.Topic != topic {
				t.Fatalf("got %#v, want the test's own message", e)
			} else if !r.Retained {
				continue // The broker delivered the message live, so it may not be stored yet.
			}
			reader.Unsubscribe(topic)
			Publish(t, writer, mqtt.Message{Topic: topic, Retained: true})
			SettleAgain(t, reader) // Further copies of the message may still arrive.
			return
		case <-time.After(100 * time.Millisecond):
		case <-late:
			t.Fatal("the retained message did not arrive")
		}
	}
}

// SettleAgain waits like SyncWithBroker, but it ignores other messages and reconnects. Use it after a broker has just
// started.
func SettleAgain(t testing.TB, c mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle/%p", c)
	c.Subscribe(mqtt.AtMostOnce, topic)
	_ = c.Publish(mqtt.Message{Topic: topic}) // If publishing fails, the LinkUp case below repeats it.
	for {
		switch e := Event(t, c).(type) {
		case mqtt.LinkUp:
			_ = c.Publish(mqtt.Message{Topic: topic})
		case mqtt.MessageReceived:
			if e.Topic == topic {
				c.Unsubscribe(topic)
				return
			}
		}
	}
}
