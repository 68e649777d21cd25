package mqtt_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/mqtt"
)

// patience bounds each wait for an event; no test waits that long.
const patience = time.Minute

// soon is the longest delay between attempts in tests.
const soon = 20 * time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns a session that is up.
func dial(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s := dialing(t, o)
	wantUp(t, s)
	return s
}

// dialing returns a session that is not up yet.
func dialing(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	if o.MaxReconnectDelay == 0 {
		o.MaxReconnectDelay = soon
	}
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func event(t *testing.T, c mqtt.Conn) mqtt.Event {
	t.Helper()
	select {
	case e := <-c.Events():
		return e
	case <-time.After(patience):
		t.Fatal("no event in time")
		return nil
	}
}

func received(t *testing.T, c mqtt.Conn) mqtt.Message {
	t.Helper()
	e := event(t, c)
	r, ok := e.(mqtt.Received)
	if !ok {
		t.Fatalf("got %#v, want a message", e)
	}
	return r.Message
}

func wantUp(t *testing.T, c mqtt.Conn) {
	t.Helper()
	if e := event(t, c); e != (mqtt.Up{}) {
		t.Fatalf("got %#v, want Up", e)
	}
}

func wantDown(t *testing.T, c mqtt.Conn) {
	t.Helper()
	if e, ok := event(t, c).(mqtt.Down); !ok || e.Err == nil {
		t.Fatalf("got %#v, want Down with an error", e)
	}
}

func publish(t *testing.T, c mqtt.Conn, m mqtt.Message) {
	t.Helper()
	if err := c.Publish(m); err != nil {
		t.Fatalf("publish to %s: %v", m.Topic, err)
	}
}

// settle returns when the broker has done all that c asked for so far: it
// works through the packets of a connection in order.
func settle(t *testing.T, c mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle/%p", c)
	c.Subscribe(mqtt.AtMostOnce, topic)
	publish(t, c, mqtt.Message{Topic: topic})
	if m := received(t, c); m.Topic != topic {
		t.Fatalf("got a message on %s, want the test's own", m.Topic)
	}
}

// eventually waits for a condition that no event tells of.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}
