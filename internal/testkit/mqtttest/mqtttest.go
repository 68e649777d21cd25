// Package mqtttest has what tests of MQTT sessions need on any broker: a session that is up, its next event or message,
// and the moment at which the broker has done what was asked of it.
package mqtttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Patience bounds each wait for an event; no test waits that long.
const Patience = time.Minute

// Dial returns a session that is up. The test's end closes it.
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

// Event returns the next event.
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

// Received returns the next event, which must be a message.
func Received(t testing.TB, c mqtt.Conn) mqtt.Message {
	t.Helper()
	return ReceivedWithin(t, c, Patience)
}

// ReceivedWithin returns the next event, which must be a message and come within limit.
func ReceivedWithin(t testing.TB, c mqtt.Conn, limit time.Duration) mqtt.Message {
	t.Helper()
	e := within(t, c, limit)
	r, ok := e.(mqtt.MessageReceived)
	if !ok {
		t.Fatalf("got %#v, want a message", e)
	}
	return r.Message
}

// WantUp wants the next event to be Up.
func WantUp(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e := Event(t, c); e != (mqtt.LinkUp{}) {
		t.Fatalf("got %#v, want Up", e)
	}
}

// WantDown wants the next event to be Down, with its cause.
func WantDown(t testing.TB, c mqtt.Conn) {
	t.Helper()
	if e, ok := Event(t, c).(mqtt.LinkDown); !ok || e.Err == nil {
		t.Fatalf("got %#v, want Down with an error", e)
	}
}

// Publish fails the test if m is not taken.
func Publish(t testing.TB, c mqtt.Conn, m mqtt.Message) {
	t.Helper()
	if err := c.Publish(m); err != nil {
		t.Fatalf("publish to %s: %v", m.Topic, err)
	}
}

// SyncWithBroker returns when the broker has done all that c asked for before: it works through the packets of a
// connection in order.
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

// SettleRetained returns when reader's broker has all that writer has had retained before. Brokers that are several
// machines retain some time later, and who subscribes in between gets neither the message nor what is retained.
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
				continue // it has come by itself meanwhile
			}
			reader.Unsubscribe(topic)
			Publish(t, writer, mqtt.Message{Topic: topic, Retained: true})
			SettleAgain(t, reader) // copies of it may be under way
			return
		case <-time.After(100 * time.Millisecond):
		case <-late:
			t.Fatal("what is retained is never there")
		}
	}
}

// SettleAgain is Settle that passes over what comes meanwhile: messages, and the loss of a link to a broker that has
// just begun.
func SettleAgain(t testing.TB, c mqtt.Conn) {
	t.Helper()
	topic := fmt.Sprintf("settle/%p", c)
	c.Subscribe(mqtt.AtMostOnce, topic)
	_ = c.Publish(mqtt.Message{Topic: topic}) // else it is lost with the link
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
