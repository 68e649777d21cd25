package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// patience bounds each wait for an event; no test waits that long.
const patience = 30 * time.Second

func clientOf(id wire.AgentID) string { return federation + "-" + string(id) }

// dial returns a session that is up.
func dial(t testing.TB, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	wantUp(t, s)
	return s
}

func event(t testing.TB, c mqtt.Conn) mqtt.Event {
	t.Helper()
	return eventWithin(t, c, patience)
}

func eventWithin(t testing.TB, c mqtt.Conn, limit time.Duration) mqtt.Event {
	t.Helper()
	select {
	case e := <-c.Events():
		return e
	case <-time.After(limit):
		t.Fatalf("no event in %v", limit)
		return nil
	}
}

func received(t testing.TB, c mqtt.Conn) mqtt.Message {
	t.Helper()
	return receivedWithin(t, c, patience)
}

func receivedWithin(t testing.TB, c mqtt.Conn, limit time.Duration) mqtt.Message {
	t.Helper()
	e := eventWithin(t, c, limit)
	r, ok := e.(mqtt.Received)
	if !ok {
		t.Fatalf("got %#v, want a message", e)
	}
	return r.Message
}

func wantUp(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e := event(t, c); e != (mqtt.Up{}) {
		t.Fatalf("got %#v, want Up", e)
	}
}

func wantDown(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e, ok := event(t, c).(mqtt.Down); !ok {
		t.Fatalf("got %#v, want Down", e)
	}
}

func publish(t testing.TB, c mqtt.Conn, m mqtt.Message) {
	t.Helper()
	if err := c.Publish(m); err != nil {
		t.Fatalf("publish to %s: %v", m.Topic, err)
	}
}

// settle returns when the broker has done what the connection asked for before.
func settle(t testing.TB, c mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle/%p", c)
	c.Subscribe(mqtt.AtMostOnce, topic)
	publish(t, c, mqtt.Message{Topic: topic})
	if m := received(t, c); m.Topic != topic {
		t.Fatalf("got a message on %s, want the test's own", m.Topic)
	}
	c.Unsubscribe(topic)
}
