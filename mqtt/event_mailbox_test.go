package mqtt_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/mqtt"
)

func message(topic string, payload int) mqtt.MessageReceived {
	return mqtt.MessageReceived{Message: mqtt.Message{Topic: topic, Payload: make([]byte, payload)}}
}

// drain returns the queued events of a mailbox.
func drain(m *mqtt.EventMailbox) []mqtt.Event {
	var all []mqtt.Event
	for {
		synctest.Wait()
		select {
		case e := <-m.Events():
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestMailboxIsBoundedInMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mqtt.NewEventMailbox(2, 1<<20)
		defer m.Close()
		for i, want := range []bool{true, true, false} {
			if got := m.Put(message("x", 1)); got != want {
				t.Errorf("Put %d: %v", i, got)
			}
			synctest.Wait() // one message may already be offered to the owner; it is included in the limit
		}
		if !m.Put(mqtt.SubscriptionRefused{Filter: "x"}) {
			t.Error("a refusal was dropped")
		}
		if n := len(drain(m)); n != 3 {
			t.Errorf("%d events, want 3", n)
		}
		if !m.Put(message("x", 1)) {
			t.Error("no room in an empty mailbox")
		}
	})
}

func TestMailboxIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mqtt.NewEventMailbox(1000, 1000)
		defer m.Close()
		for i, c := range []struct {
			payload int
			want    bool
		}{{1000, false}, {800, true}, {100, false}, {0, true}, {0, true}, {0, false}} {
			if got := m.Put(message("x", c.payload)); got != c.want {
				t.Errorf("Put %d of %d bytes: %v", i, c.payload, got)
			}
		}
		drain(m)
		if !m.Put(message("x", 800)) {
			t.Error("no room in an empty mailbox")
		}
	})
}

func TestMailboxTellsStatesInBrief(t *testing.T) {
	first, last := mqtt.LinkDown{Err: errors.New("first")}, mqtt.LinkDown{Err: errors.New("last")}
	up, refused, over, x := mqtt.LinkUp{}, mqtt.SubscriptionRefused{Filter: "f", SubackCode: 0x80},
		mqtt.SubscriptionRefusalEnded{Filter: "f"},
		message("x", 0)
	other := mqtt.SubscriptionRefused{Filter: "g", SubackCode: 0x80}
	for name, c := range map[string]struct{ put, want []mqtt.Event }{
		"nothing to shorten": {[]mqtt.Event{up, x, first, up}, []mqtt.Event{up, x, first, up}},
		"came back":          {[]mqtt.Event{x, first, up, last, up}, []mqtt.Event{x, last, up}},
		"lost again":         {[]mqtt.Event{x, first, up, last}, []mqtt.Event{x, last}},
		"never read":         {[]mqtt.Event{x, up, first, up, first, up}, []mqtt.Event{x, up}},
		"refused twice":      {[]mqtt.Event{x, refused, refused, up}, []mqtt.Event{x, refused, up}},
		"granted at last":    {[]mqtt.Event{x, refused, other, over, refused, over}, []mqtt.Event{x, other, over}},
		"refused by another": {[]mqtt.Event{x, up, refused, other, first, up, refused, last, up, refused},
			[]mqtt.Event{x, up, refused}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mqtt.NewEventMailbox(10, 10_000)
				defer m.Close()
				for i, e := range c.put {
					m.Put(e)
					if i == 0 {
						synctest.Wait() // the first event is already offered to the owner and cannot be merged any more
					}
				}
				got := drain(m)
				if len(got) != len(c.want) {
					t.Fatalf("got %v, want %v", got, c.want)
				}
				for i := range got {
					if _, message := got[i].(mqtt.MessageReceived); !message && got[i] != c.want[i] {
						t.Errorf("event %d is %#v, want %#v", i, got[i], c.want[i])
					}
				}
			})
		})
	}
}

func TestMailboxClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mqtt.NewEventMailbox(10, 10_000)
		m.Put(message("x", 0))
		m.Close()
		m.Close()
		if e, open := <-m.Events(); open {
			t.Errorf("got %#v", e)
		}
		if m.Put(message("x", 0)) {
			t.Error("a closed mailbox took a message")
		}
	})
}
