package mqtt_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestReconnectSubscribesAgain checks that a session subscribes again after each restart of the broker (R6).
func TestReconnectSubscribesAgain(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s"})
		s.Subscribe(mqtt.AtLeastOnce, "before", "given up")
		mqtttest.SyncWithBroker(t, s)
		s.Unsubscribe("given up")
		for range 20 {
			b.stop()
			mqtttest.WantDown(t, s)
			b.start(t)
			mqtttest.WantUp(t, s)
			mqtttest.Publish(t, s, mqtt.Message{Topic: "given up"})
			mqtttest.Publish(t, s, mqtt.Message{Topic: "before"})
			if m := mqtttest.Received(t, s); m.Topic != "before" {
				t.Errorf("got %s", m.Topic)
			}
		}
	})
}

func TestPublishWhileDown(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s"})
		b.stop()
		defer b.start(t)
		mqtttest.WantDown(t, s)
		for _, qos := range []mqtt.QoS{mqtt.AtMostOnce, mqtt.AtLeastOnce} {
			begun := time.Now()
			if err := s.Publish(mqtt.Message{Topic: "x", QoS: qos}); !errors.Is(err, mqtt.ErrDown) {
				t.Errorf("QoS %d: %v, want ErrDown", qos, err)
			}
			if took := time.Since(begun); took > quick {
				t.Errorf("QoS %d: took %v", qos, took)
			}
		}
	})
}

// TestSubscribeWhileDown checks that a subscription made without a link is sent when the link opens.
func TestSubscribeWhileDown(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		b.stop()
		s := dialing(t, mqtt.Options{URL: b.url(), ClientID: "s"})
		s.Subscribe(mqtt.AtMostOnce, "x", "y")
		s.Unsubscribe("x")
		b.start(t)
		mqtttest.WantUp(t, s)
		mqtttest.Publish(t, s, mqtt.Message{Topic: "x"})
		mqtttest.Publish(t, s, mqtt.Message{Topic: "y"})
		if m := mqtttest.Received(t, s); m.Topic != "y" {
			t.Errorf("got %s", m.Topic)
		}
	})
}

// TestWillOnAbruptDeath checks that the session calls Options.Will for each connection attempt, so that the will
// (last-will message) can contain the current boot epoch (R18).
func TestWillOnAbruptDeath(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		watcher := dial(t, mqtt.Options{URL: b.url(), ClientID: "watcher"})
		watcher.Subscribe(mqtt.AtLeastOnce, "p/s")
		mqtttest.SyncWithBroker(t, watcher)
		p := startProxy(t, b.url(), nil)
		attempt := 0
		s := dial(t, mqtt.Options{URL: p.url(), ClientID: "s", Will: func() mqtt.Message {
			attempt++
			return mqtt.Message{Topic: "p/s", Payload: fmt.Appendf(nil, "lost %d", attempt), QoS: mqtt.AtLeastOnce,
				Retained: true}
		}})
		for i := range 3 {
			p.cut()
			mqtttest.WantDown(t, s)
			if m := mqtttest.Received(t, watcher); string(m.Payload) != fmt.Sprintf("lost %d", i+1) {
				t.Errorf("will %d is %q", i+1, m.Payload)
			}
			mqtttest.WantUp(t, s)
		}
		// A normal disconnect publishes no will: the next message is published by the test.
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mqtttest.SyncWithBroker(t, watcher)
	})
}

// TestNoWillBehindWhatComes checks that a broker publishes no will if the session disconnects while messages arrive. If
// a connection is closed with unread data, a broker may regard it as lost and ignore the DISCONNECT.
func TestNoWillBehindWhatComes(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		watcher := dial(t, mqtt.Options{URL: b.url(), ClientID: "watcher"})
		watcher.Subscribe(mqtt.AtMostOnce, "will")
		mqtttest.SyncWithBroker(t, watcher)
		for i := range 20 {
			s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s", Will: func() mqtt.Message {
				return mqtt.Message{Topic: "will", Payload: fmt.Append(nil, i)}
			}})
			s.Subscribe(mqtt.AtMostOnce, "own")
			for range 10 {
				mqtttest.Publish(t, s, mqtt.Message{Topic: "own"})
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mqtttest.SyncWithBroker(t, watcher)
		}
	})
}

func TestCloseFlushes(t *testing.T) {
	const n = 100
	eachBroker(t, func(t *testing.T, b testBroker) {
		reader := dial(t, mqtt.Options{URL: b.url(), ClientID: "reader"})
		reader.Subscribe(mqtt.AtLeastOnce, "x")
		mqtttest.SyncWithBroker(t, reader)
		ignore := goleak.IgnoreCurrent()
		writer := dial(t, mqtt.Options{URL: b.url(), ClientID: "writer"})
		for i := range n {
			mqtttest.Publish(t, writer, mqtt.Message{Topic: "x", Payload: fmt.Append(nil, i), QoS: mqtt.AtLeastOnce})
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if m := mqtttest.Received(t, reader); string(m.Payload) != fmt.Sprint(i) {
				t.Fatalf("message %d is %s", i, m.Payload)
			}
		}
		goleak.VerifyNone(t, ignore)
	})
}

// TestTakeover checks that the broker closes the older of two sessions that use the same client id.
func TestTakeover(t *testing.T) {
	eachBroker(t, func(t *testing.T, b testBroker) {
		old := dial(t, mqtt.Options{URL: b.url(), ClientID: "s", MaxReconnectDelay: time.Hour})
		dial(t, mqtt.Options{URL: b.url(), ClientID: "s"})
		mqtttest.WantDown(t, old)
	})
}

func TestBlockedConsumerHurtsNobodyElse(t *testing.T) {
	const n = 10_000
	eachBroker(t, func(t *testing.T, b testBroker) {
		counts := newCounter()
		blocked := dial(t, mqtt.Options{URL: b.url(), ClientID: "blocked", MailboxMessages: 50,
			ObserveMessage: counts.observe})
		blocked.Subscribe(mqtt.AtMostOnce, "flood")
		mqtttest.SyncWithBroker(t, blocked) // the events of this session are not read from here on
		healthy := dial(t, mqtt.Options{URL: b.url(), ClientID: "healthy"})
		healthy.Subscribe(mqtt.AtMostOnce, "flood")
		mqtttest.SyncWithBroker(t, healthy)
		writer := dial(t, mqtt.Options{URL: b.url(), ClientID: "writer"})
		const step = 50
		for range n / step {
			for range step {
				mqtttest.Publish(t, writer, mqtt.Message{Topic: "flood", Payload: make([]byte, 100)})
			}
			for range step {
				mqtttest.Received(t, healthy)
			}
		}
		eventually(t, "the blocked one has seen all", func() bool { return counts.get(incoming) == n+1 })
		// The mailbox holds 50 messages, including the one that is offered to the owner.
		if kept := counts.get(incoming) - counts.get(incomingDropped) - 1; kept != 50 {
			t.Errorf("%d messages kept of %d, want 50", kept, n)
		}
		mqtttest.Publish(t, blocked, mqtt.Message{Topic: "flood"})
		mqtttest.Received(t, healthy)
	})
}

// TestPause checks that DisconnectFor first sends the outbox and a DISCONNECT, so that no will is published, and that
// all subscriptions are restored after the pause.
func TestPause(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, b testBroker) {
		watcher := dial(t, mqtt.Options{URL: b.url(), ClientID: "watcher"})
		watcher.Subscribe(mqtt.AtLeastOnce, "will", "last")
		mqtttest.SyncWithBroker(t, watcher)
		s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s",
			Will: func() mqtt.Message { return mqtt.Message{Topic: "will", Payload: []byte("lost")} }})
		s.Subscribe(mqtt.AtLeastOnce, "x")
		mqtttest.SyncWithBroker(t, s)
		mqtttest.Publish(t, s, mqtt.Message{Topic: "last", QoS: mqtt.AtLeastOnce})
		const pause = 300 * time.Millisecond // the pause is much longer than a normal reconnect
		began := time.Now()
		s.DisconnectFor(pause)
		s.DisconnectFor(time.Hour) // has no effect, because a pause is already in progress
		if d, ok := mqtttest.Event(t, s).(mqtt.LinkDown); !ok || !errors.Is(d.Err, mqtt.ErrPlannedDisconnect) {
			t.Fatalf("got %v, want Down with ErrPaused", d)
		}
		s.DisconnectFor(time.Hour) // has no effect, because the session is already disconnected
		mqtttest.WantUp(t, s)
		if d := time.Since(began); d < pause {
			t.Errorf("back after %v", d)
		}
		mqtttest.Publish(t, s, mqtt.Message{Topic: "x"})
		if m := mqtttest.Received(t, s); m.Topic != "x" {
			t.Errorf("got %s", m.Topic)
		}
		if m := mqtttest.Received(t, watcher); m.Topic != "last" {
			t.Errorf("got %s", m.Topic)
		}
		mqtttest.SyncWithBroker(t, watcher) // fails if a will arrives
	})
}

// TestPauseIsNoLoss checks that the duration of a requested pause is not treated as downtime of the broker: the first
// failed attempt after the pause is followed by the shortest delay.
func TestPauseIsNoLoss(t *testing.T) {
	t.Parallel()
	var connects atomic.Int32
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.ConnectPacket); ok {
			if connects.Add(1) == 2 {
				_ = conn.Close()
			}
		}
		return usual(p)
	})
	logger, lines := logged()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", MaxReconnectDelay: time.Minute, Rand: newRand(1),
		Logger: logger})
	// After a broker's downtime of the same length, the delay would be at least half of that length.
	s.DisconnectFor(2500 * time.Millisecond)
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)
	line(t, lines) // read the log line "connected"
	_, text, found := strings.Cut(line(t, lines), "retry in ")
	text, _, _ = strings.Cut(strings.TrimSpace(text), `"`)
	if d, err := time.ParseDuration(text); !found || err != nil || d > time.Second {
		t.Errorf("waits %q after the first failure, want at most 1s", text)
	}
}
