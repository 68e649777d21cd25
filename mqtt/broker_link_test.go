package mqtt_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// logged returns a logger and a channel with its lines.
func logged() (*slog.Logger, lineWriter) {
	lines := make(lineWriter, 1000)
	return slog.New(slog.NewTextHandler(lines, nil)), lines
}

func line(t *testing.T, lines lineWriter) string {
	t.Helper()
	select {
	case l := <-lines:
		return l
	case <-time.After(patience):
		t.Fatal("no line in the log")
		return ""
	}
}

func TestSubscriptionRefused(t *testing.T) {
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		s, ok := p.(*packets.SubscribePacket)
		if !ok {
			return usual(p)
		}
		if len(s.Topics) > 8 {
			t.Errorf("a SUBSCRIBE for %d filters", len(s.Topics))
		}
		ack := usual(p).(*packets.SubackPacket)
		for i, filter := range s.Topics {
			if strings.HasPrefix(filter, "secret/") {
				ack.ReturnCodes[i] = 0x80
			}
		}
		return ack
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	s.Subscribe(mqtt.AtMostOnce, "a", "b", "secret/1", "c", "d", "e", "f", "g", "h", "secret/2")
	for _, filter := range []string{"secret/1", "secret/2"} {
		if e := mqtttest.Event(t, s); e != (mqtt.SubscriptionRefused{Filter: filter, SubackCode: 0x80}) {
			t.Errorf("got %#v", e)
		}
	}
}

// TestBlockedConsumerKeepsPinging checks that a session continues to send PINGREQ packets although the owner does not
// read the events of a flood of messages.
func TestBlockedConsumerKeepsPinging(t *testing.T) {
	t.Parallel()
	const n = 10_000
	pings := make(chan struct{}, 100)
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		switch p.(type) {
		case *packets.SubscribePacket:
			_ = usual(p).Write(conn)
			m := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
			m.TopicName, m.Payload = "x", make([]byte, 100)
			for range n {
				if m.Write(conn) != nil {
					break
				}
			}
			return nil
		case *packets.PingreqPacket:
			pings <- struct{}{}
		}
		return usual(p)
	})
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", KeepAlive: 2 * time.Second, MailboxBytes: 100_000,
		ObserveMessage: counts.observe})
	s.Subscribe(mqtt.AtMostOnce, "x")
	for range 2 { // a second ping shows that the first ping was answered
		select {
		case <-pings:
		case <-time.After(patience):
			t.Fatal("no ping")
		}
	}
	eventually(t, "all messages are seen", func() bool { return counts.get(incoming) == n })
	if kept := n - counts.get(incomingDropped); kept == 0 || kept > 1000 {
		t.Errorf("%d messages kept in a mailbox of 100 kB", kept)
	}
	mqtttest.Publish(t, s, mqtt.Message{Topic: "still up"})
}

// TestNoAcknowledgement checks that the link is replaced if the broker never acknowledges a message.
func TestNoAcknowledgement(t *testing.T) {
	t.Parallel()
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.PublishPacket); ok {
			return nil
		}
		return usual(p)
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", KeepAlive: time.Second})
	mqtttest.Publish(t, s, mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce})
	e, ok := mqtttest.Event(t, s).(mqtt.LinkDown)
	if !ok || !strings.Contains(e.Err.Error(), "no acknowledgement from the broker for 1s") {
		t.Errorf("got %#v", e)
	}
	mqtttest.WantUp(t, s)
}

// TestNoPoisonLoop checks that a message which makes the broker disconnect is neither reported as sent nor sent again
// after the reconnect, because the broker would refuse it forever (R2, R11).
func TestNoPoisonLoop(t *testing.T) {
	var poison atomic.Int64
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if m, ok := p.(*packets.PublishPacket); ok && m.TopicName == "poison" {
			poison.Add(1)
			_ = conn.Close()
			return nil
		}
		return usual(p)
	})
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", ObserveMessage: counts.observe})
	mqtttest.Publish(t, s, mqtt.Message{Topic: "poison", QoS: mqtt.AtLeastOnce})
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)
	eventually(t, "its loss is told", func() bool { return counts.get(outgoingDropped) == 1 })
	mqtttest.Publish(t, s, mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := poison.Load(); n != 1 {
		t.Errorf("sent %d times", n)
	}
	if n, dropped := counts.get(outgoing), counts.get(outgoingDropped); n != 2 || dropped != 1 {
		t.Errorf("%d messages, %d dropped; want 2 and 1", n, dropped)
	}
}

// TestBusy checks that a broker that does not read fills the outbox but does not block the callers.
func TestBusy(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.PublishPacket); ok {
			<-stop // the broker stops reading
		}
		return usual(p)
	})
	t.Cleanup(func() { close(stop) })
	counts := newCounter()
	s := dial(t, mqtt.Options{
		URL: f.url(), ClientID: "s", OutboxBytes: 1 << 20, WriteTimeout: 3 * time.Second,
		ObserveMessage: counts.observe,
	})
	accepted := 0
	var err error
	for err == nil && accepted < 1000 {
		if err = s.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, 60<<10)}); err == nil {
			accepted++
		}
	}
	if !errors.Is(err, mqtt.ErrOutboxFull) {
		t.Fatalf("after %d messages: %v, want ErrBusy", accepted, err)
	}
	mqtttest.WantDown(t, s) // the link goes down after the write timeout
	// Each accepted message must be reported as sent or dropped, except messages that a sending goroutine still holds.
	eventually(t, "all messages are accounted for", func() bool { return counts.get(outgoing) == accepted })
	if dropped := counts.get(outgoingDropped); dropped == 0 || dropped == accepted {
		t.Errorf("%d of %d dropped, want some: the first was sent, the last not", dropped, accepted)
	}
	if err := s.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, 1<<20)}); err == nil ||
		errors.Is(err, mqtt.ErrOutboxFull) || errors.Is(err, mqtt.ErrDown) {
		t.Errorf("a message larger than the outbox: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "tcp://" + listener.Addr().String()
	_ = listener.Close() // close the listener, so that connections to the port are refused
	logger, lines := logged()
	attempts := make(chan struct{}, 1000)
	s := dialing(t, mqtt.Options{URL: url, ClientID: "s", Logger: logger, Will: func() mqtt.Message {
		attempts <- struct{}{}
		return mqtt.Message{Topic: "will"}
	}})
	if l := line(t, lines); !strings.Contains(l,
		`"cannot reach the broker at `+url+`: connection refused; retry in `) {
		t.Errorf("logged %s", l)
	}
	for range 4 {
		<-attempts
	}
	if err := s.Publish(mqtt.Message{Topic: "x"}); !errors.Is(err, mqtt.ErrDown) {
		t.Errorf("Publish: %v", err)
	}
	wantQuickClose(t, s)
	if n := len(lines); n != 0 {
		t.Errorf("%d more lines for the same failure, such as %s", n, <-lines)
	}
}

// quick is longer than a busy machine needs for an operation without waiting, and shorter than the timeout of a
// connection attempt.
const quick = 5 * time.Second

func wantQuickClose(t *testing.T, s *mqtt.Session) {
	t.Helper()
	begun := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > quick {
		t.Errorf("Close took %v", took)
	}
}

// TestCloseInterrupts checks that Close does not wait for the next connection attempt, or for an answer to the current
// attempt.
func TestCloseInterrupts(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		logger, lines := logged()
		s := dialing(t, mqtt.Options{URL: "tcp://127.0.0.1:1", ClientID: "s", Logger: logger,
			MaxReconnectDelay: time.Hour})
		line(t, lines)
		wantQuickClose(t, s)
	})
	for _, scheme := range []string{"tcp", "tls", "ws"} {
		t.Run(scheme, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			s := dialing(t, mqtt.Options{URL: scheme + "://" + listener.Addr().String(), ClientID: "s"})
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err != nil { // the server reads the request but sends no answer
				t.Fatal(err)
			}
			wantQuickClose(t, s)
		})
	}
}

func TestRefusedConnect(t *testing.T) {
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		ack := packets.NewControlPacket(packets.Connack).(*packets.ConnackPacket)
		ack.ReturnCode = packets.ErrRefusedNotAuthorised
		if c, ok := p.(*packets.ConnectPacket); ok &&
			(c.ProtocolVersion != 4 || !c.CleanSession || c.Username != "u" ||
				!bytes.Equal(c.Password, []byte("hush"))) {
			t.Errorf("CONNECT is %v", c)
		}
		return ack
	})
	logger, lines := logged()
	s := dialing(t, mqtt.Options{URL: f.url(), ClientID: "fed-a", Username: "u", Password: "hush", Logger: logger})
	l := line(t, lines)
	if !strings.Contains(l, "the broker at "+f.url()+" refused client id fed-a: not Authorized; retry in ") ||
		strings.Contains(l, "hush") {
		t.Errorf("logged %s", l)
	}
	wantQuickClose(t, s)
}

// TestFlappingLinkStaysBounded checks that unread LinkUp and LinkDown events are merged.
func TestFlappingLinkStaysBounded(t *testing.T) {
	var connects atomic.Int64
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.ConnectPacket); ok && connects.Add(1) < 20 {
			_ = usual(p).Write(conn)
			_ = conn.Close()
			return nil
		}
		return usual(p)
	})
	s := dialing(t, mqtt.Options{URL: f.url(), ClientID: "s", MaxReconnectDelay: time.Millisecond})
	eventually(t, "the last link is up",
		func() bool { return connects.Load() >= 20 && s.Publish(mqtt.Message{Topic: "x"}) == nil })
	s.Subscribe(mqtt.AtMostOnce, "#/last") // the refusal of this filter arrives after all other refusals
	var told []mqtt.Event
	for {
		e := mqtttest.Event(t, s)
		if _, last := e.(mqtt.SubscriptionRefused); last {
			break
		}
		told = append(told, e)
	}
	if n := len(told); n == 0 || n > 3 || told[n-1] != (mqtt.LinkUp{}) {
		t.Errorf("%d events for 20 connections: %v; want 1 or 3, and Up last", n, told)
	}
}
