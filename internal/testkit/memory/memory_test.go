package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestConformance in package mqtt checks the requirements of every mqtt.Conn.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait lets the time of a synctest bubble advance.
func wait(d time.Duration) { <-time.After(d) }

// take returns short descriptions of the events that have arrived when all goroutines are idle.
func take(c mqtt.Conn) []string {
	var all []string
	for {
		synctest.Wait()
		select {
		case e, open := <-c.Events():
			if !open {
				return append(all, "closed")
			}
			all = append(all, short(e))
		default:
			return all
		}
	}
}

func short(e mqtt.Event) string {
	switch e := e.(type) {
	case mqtt.MessageReceived:
		return e.Topic + "=" + string(e.Payload)
	case mqtt.LinkDown:
		return "down: " + e.Err.Error()
	}
	return fmt.Sprintf("%T", e)
}

func want(t *testing.T, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("got %q, want %q", got, wanted)
	}
}

func publish(t *testing.T, c mqtt.Conn, topic, payload string) {
	t.Helper()
	if err := c.Publish(mqtt.Message{Topic: topic, Payload: []byte(payload)}); err != nil {
		t.Errorf("publish to %s: %v", topic, err)
	}
}

func connect(t *testing.T, b *memory.Broker, id string, will *mqtt.Message) *memory.Conn {
	t.Helper()
	c := b.Connect(id, will)
	t.Cleanup(func() { _ = c.Close() })
	want(t, take(c), "mqtt.LinkUp")
	return c
}

func TestDisconnectAndReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		watcher := connect(t, b, "watcher", nil)
		watcher.Subscribe(mqtt.AtLeastOnce, "p/+")
		c := connect(t, b, "c", &mqtt.Message{Topic: "p/c", Payload: []byte("lost"), Retained: true})
		c.Subscribe(mqtt.AtLeastOnce, "x", "kept")
		if err := watcher.Publish(mqtt.Message{Topic: "kept", Payload: []byte("1"), Retained: true}); err != nil {
			t.Fatal(err)
		}
		want(t, take(c), "kept=1")

		for range 2 { // Repeat the test, because the client must have a will again after a reconnect.
			b.Disconnect("c")
			b.Disconnect("c")
			want(t, take(c), "down: "+memory.ErrCut.Error())
			want(t, take(watcher), "p/c=lost")
			if err := c.Publish(mqtt.Message{Topic: "x"}); !errors.Is(err, mqtt.ErrDown) {
				t.Errorf("Publish while down: %v", err)
			}
			publish(t, watcher, "x", "missed")
			b.Reconnect("c")
			b.Reconnect("c")
			publish(t, watcher, "x", "seen")
			want(t, take(c), "mqtt.LinkUp", "kept=1", "x=seen")
		}
		_ = c.Close() // Closing the connection must not publish the will.
		b.Disconnect("c")
		b.Reconnect("c")
		want(t, take(watcher))
		want(t, take(c), "closed")
	})
}

func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		watcher := connect(t, b, "watcher", nil)
		watcher.Subscribe(mqtt.AtLeastOnce, "will")
		old := connect(t, b, "c", &mqtt.Message{Topic: "will", Payload: []byte("old")})
		old.Subscribe(mqtt.AtMostOnce, "x")
		young := connect(t, b, "c", nil)
		want(t, take(old), "down: "+memory.ErrTakenOver.Error())
		want(t, take(watcher), "will=old")
		b.Reconnect("c") // the client id refers to the newer connection, which is still connected
		publish(t, watcher, "x", "1")
		want(t, take(old))
		want(t, take(young))
		_ = old.Close() // Closing the old connection must not affect the newer one.
		young.Subscribe(mqtt.AtMostOnce, "x")
		publish(t, watcher, "x", "2")
		want(t, take(young), "x=2")
	})
}

// TestDelay checks that a delayed message is never overtaken, even by a message without delay.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := map[string]time.Duration{"slow": 3 * time.Second, "slower": 5 * time.Second}
		b := memory.New(memory.Options{Delay: func(topic string) time.Duration { return delays[topic] }})
		c, other := connect(t, b, "c", nil), connect(t, b, "other", nil)
		c.Subscribe(mqtt.AtMostOnce, "#")
		other.Subscribe(mqtt.AtMostOnce, "fast", "slow")
		publish(t, c, "slower", "1")
		publish(t, c, "slow", "2")
		publish(t, c, "fast", "3")
		want(t, take(c))
		wait(4 * time.Second)
		want(t, take(c))
		want(t, take(other), "slow=2", "fast=3")
		wait(time.Second)
		want(t, take(c), "slower=1", "slow=2", "fast=3")
		publish(t, c, "fast", "4")
		want(t, take(c), "fast=4")

		publish(t, c, "slow", "lost with the connection")
		b.Disconnect("c")
		b.Reconnect("c")
		wait(time.Minute)
		want(t, take(c), "down: "+memory.ErrCut.Error(), "mqtt.LinkUp")
	})
}

func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{Drop: func(topic string) bool { return topic == "lossy" }})
		c := connect(t, b, "c", nil)
		c.Subscribe(mqtt.AtMostOnce, "#")
		publish(t, c, "lossy", "1")
		publish(t, c, "safe", "2")
		want(t, take(c), "safe=2")
	})
}

func TestMailboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{MailboxMessages: 3})
		c := connect(t, b, "c", nil)
		c.Subscribe(mqtt.AtMostOnce, "#")
		for i := range 10 {
			publish(t, c, "x", fmt.Sprint(i))
		}
		b.Disconnect("c")
		want(t, take(c), "x=0", "x=1", "x=2", "down: "+memory.ErrCut.Error())
	})
}

// TestPayloadsAreCopies checks that a receiver may overwrite a received payload.
func TestPayloadsAreCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		first, second := connect(t, b, "1", nil), connect(t, b, "2", nil)
		first.Subscribe(mqtt.AtMostOnce, "x")
		second.Subscribe(mqtt.AtMostOnce, "x")
		if err := first.Publish(mqtt.Message{Topic: "x", Payload: []byte("abc"), Retained: true}); err != nil {
			t.Fatal(err)
		}
		(<-first.Events()).(mqtt.MessageReceived).Payload[0] = 'z'
		want(t, take(second), "x=abc")
		first.Subscribe(mqtt.AtMostOnce, "x")
		want(t, take(first), "x=abc")
	})
}

// TestDeterministic checks that the same seed gives the same events for any scheduling of goroutines.
func TestDeterministic(t *testing.T) {
	run := func() (transcript []string) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			b := memory.New(memory.Options{
				Delay: func(string) time.Duration { return time.Duration(r.IntN(100)) * time.Millisecond },
				Drop:  func(string) bool { return r.IntN(4) == 0 },
			})
			var conns []*memory.Conn
			for i := range 5 {
				c := connect(t, b, fmt.Sprint("c", i), nil)
				c.Subscribe(mqtt.AtMostOnce, "#")
				conns = append(conns, c)
			}
			for i := range 100 {
				publish(t, conns[i%5], fmt.Sprint("t", i%7), fmt.Sprint(i))
			}
			wait(time.Minute)
			for _, c := range conns {
				transcript = append(transcript, take(c)...)
			}
		})
		return transcript
	}
	first := run()
	if len(first) < 200 || len(first) > 490 {
		t.Errorf("%d of 500 messages arrived, want about 375", len(first))
	}
	if !slices.Equal(first, run()) {
		t.Error("two runs differ")
	}
}

// TestRefuse checks that a refused filter is retried with growing delays until it is granted.
func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var grants atomic.Bool // true if the broker accepts the filter s/+
		b := memory.New(memory.Options{Refuse: func(id, filter string) bool {
			return id == "c" && (filter == "given up" || filter == "s/+" && !grants.Load())
		}})
		c, from := connect(t, b, "c", nil), connect(t, b, "from", nil)
		if err := from.Publish(mqtt.Message{Topic: "s/a", Payload: []byte("kept"), Retained: true}); err != nil {
			t.Fatal(err)
		}
		c.Subscribe(mqtt.AtLeastOnce, "s/+", "x")
		want(t, take(c), "mqtt.SubscriptionRefused")
		publish(t, from, "s/a", "missed")
		publish(t, from, "x", "seen")
		want(t, take(c), "x=seen")
		wait(4 * time.Second)
		want(t, take(c), "mqtt.SubscriptionRefused", "mqtt.SubscriptionRefused")
		grants.Store(true)
		wait(4 * time.Second)
		want(t, take(c), "mqtt.SubscriptionRefusalEnded", "s/a=kept")
		publish(t, from, "s/a", "seen")
		want(t, take(c), "s/a=seen")

		c.Subscribe(mqtt.AtLeastOnce, "given up")
		want(t, take(c), "mqtt.SubscriptionRefused")
		c.Unsubscribe("given up")
		want(t, take(c), "mqtt.SubscriptionRefusalEnded")
		wait(time.Hour)
		want(t, take(c))

		grants.Store(false)
		b.Disconnect("c")
		b.Reconnect("c")
		want(t, take(c), "down: "+memory.ErrCut.Error(), "mqtt.LinkUp", "mqtt.SubscriptionRefused")
		b.Disconnect("c")
		wait(time.Hour)
		want(t, take(c), "down: "+memory.ErrCut.Error())
	})
}

// TestSession checks that two sessions with one client id alternate, each with a new will.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		watcher := connect(t, b, "watcher", nil)
		watcher.Subscribe(mqtt.AtLeastOnce, "will")
		session := func(name string) *memory.Conn {
			link := 0
			c := b.Session("c", func() mqtt.Message {
				link++
				return mqtt.Message{Topic: "will", Payload: fmt.Append(nil, name, link)}
			}, func() time.Duration { return 2 * time.Second })
			t.Cleanup(func() { _ = c.Close() })
			c.Subscribe(mqtt.AtMostOnce, "x")
			return c
		}
		old := session("old")
		want(t, take(old), "mqtt.LinkUp")
		young := session("young")
		want(t, take(old), "down: "+memory.ErrTakenOver.Error())
		want(t, take(young), "mqtt.LinkUp")
		wait(3 * time.Second)
		publish(t, watcher, "x", "1")
		want(t, take(old), "mqtt.LinkUp", "x=1")
		want(t, take(young), "down: "+memory.ErrTakenOver.Error())

		old.DisconnectFor(time.Hour)
		old.DisconnectFor(time.Second) // This call has no effect, because the link is already down.
		want(t, take(old), "down: "+mqtt.ErrPlannedDisconnect.Error())
		wait(3 * time.Second)
		publish(t, watcher, "x", "2")
		want(t, take(young), "mqtt.LinkUp", "x=2")
		want(t, take(watcher), "will=old1", "will=young1")
		_ = young.Close()
		wait(time.Hour)
		want(t, take(old), "mqtt.LinkUp")
		b.Disconnect("c")
		_ = old.Close()
		wait(time.Hour)
		want(t, take(watcher), "will=old3")
	})
}
