package broker_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/wire"
)

func TestRoundTripAndRetained(t *testing.T) {
	s := start(t, broker.Options{})
	a := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "a"})
	b := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "b"})
	b.Subscribe(mqtt.AtLeastOnce, "x/+")
	payload := bytes.Repeat([]byte{7}, 60<<10)
	// The message is retained, so the order of subscription and publication does not matter.
	if err := a.Publish(mqtt.Message{Topic: "x/1", Payload: payload, QoS: mqtt.AtLeastOnce,
		Retained: true}); err != nil {
		t.Fatal(err)
	}
	if m := mqtttest.Received(t, b); m.Topic != "x/1" || !bytes.Equal(m.Payload, payload) {
		t.Errorf("got %s with %d bytes", m.Topic, len(m.Payload))
	}
	late := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "late"})
	late.Subscribe(mqtt.AtMostOnce, "x/1")
	if m := mqtttest.Received(t, late); !m.Retained || !bytes.Equal(m.Payload, payload) {
		t.Errorf("late subscriber got retained %v with %d bytes", m.Retained, len(m.Payload))
	}
	stats := s.Stats()
	if stats.Clients != 3 || stats.MessagesIn != 1 || stats.BytesIn < int64(len(payload)) ||
		stats.BytesOut < int64(len(payload)) || stats.MessagesDropped != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

func TestRetainedBurst(t *testing.T) {
	const n = 1000 // Mosquitto queues the same number of messages
	s := start(t, broker.Options{})
	a := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "a", OutboxMessages: n})
	for i := range n {
		if err := a.Publish(mqtt.Message{Topic: fmt.Sprintf("p/%d", i), Payload: []byte("online"), QoS: mqtt.AtMostOnce,
			Retained: true}); err != nil {
			t.Fatal(err)
		}
	}
	a.Subscribe(mqtt.AtMostOnce, "p/0") // the broker answers this subscription after all other messages
	mqtttest.Received(t, a)
	late := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "late", MailboxMessages: n})
	late.Subscribe(mqtt.AtMostOnce, "p/+")
	for range n {
		mqtttest.Received(t, late)
	}
	if dropped := s.Stats().MessagesDropped; dropped != 0 {
		t.Errorf("%d messages dropped", dropped)
	}
}

// TestRetainingWhileSomebodyLooks checks that subscribers can read retained messages while other clients change them.
// Mochi reads retained messages without the lock that protects its writes. The race detector reports a missing lock.
func TestRetainingWhileSomebodyLooks(t *testing.T) {
	const rounds = 1000
	s := start(t, broker.Options{})
	var all sync.WaitGroup
	for i := range 2 {
		looker := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: fmt.Sprint("looker ", i),
			MailboxMessages: 1 << 16})
		all.Go(func() {
			for range rounds {
				looker.Subscribe(mqtt.AtMostOnce, "x/+")
				looker.Unsubscribe("x/+")
			}
			looker.Subscribe(mqtt.AtMostOnce, "end")
			for {
				if m, ok := (<-looker.Events()).(mqtt.MessageReceived); !ok || m.Topic == "end" {
					return
				}
			}
		})
		writer := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: fmt.Sprint("writer ", i),
			OutboxMessages: 10 * rounds})
		all.Go(func() {
			for k := range 2 * rounds { // alternately retain and delete a message
				m := mqtt.Message{Topic: fmt.Sprint("x/", i), Payload: make([]byte, 1-k%2), Retained: true}
				if err := writer.Publish(m); err != nil {
					t.Error(err)
				}
			}
			if err := writer.Publish(mqtt.Message{Topic: "end", Payload: []byte{1}, Retained: true}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestStalledSubscriberDelaysNobody(t *testing.T) {
	const n, size = 600, 60 << 10 // 35 MB: more than the sockets and the queue can hold
	s := start(t, broker.Options{})
	stalled := rawDial(t, s)
	connect(stalled, "stalled")
	if code := subscribe(stalled, 1, 1, "x"); code != 1 {
		t.Fatalf("SUBACK %d", code)
	} // the stalled subscribers stop reading here
	healthy := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "healthy"})
	healthy.Subscribe(mqtt.AtLeastOnce, "x", "ready")
	if err := healthy.Publish(mqtt.Message{Topic: "ready"}); err != nil {
		t.Fatal(err)
	}
	mqtttest.Received(t, healthy)

	publisher := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "publisher"})
	for i := range n { // send one message at a time, so that the healthy subscriber keeps up
		if err := publisher.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, size),
			QoS: mqtt.AtLeastOnce}); err != nil {
			t.Fatal(err)
		}
		if m := mqtttest.Received(t, healthy); len(m.Payload) != size {
			t.Fatalf("message %d has %d bytes", i, len(m.Payload))
		}
	}
	if stats := s.Stats(); stats.ClosedAsSlow != 1 {
		t.Errorf("stats are %+v, want one connection closed as slow", stats)
	}
	wantClosed(t, stalled)
}

// TestUnacknowledgedMessagesAreBounded checks that a client that reads but never acknowledges messages receives at most
// 256 messages.
func TestUnacknowledgedMessagesAreBounded(t *testing.T) {
	const most, n = 256, 300
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	connect(c, "c")
	subscribe(c, 1, 1, "x")
	publisher := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "publisher"})
	for range n {
		if err := publisher.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}); err != nil {
			t.Fatal(err)
		}
	}
	if err := publisher.Publish(mqtt.Message{Topic: "x", Payload: []byte("end")}); err != nil {
		t.Fatal(err)
	}
	got := 0
	for len(brokers.Receive[*packets.PublishPacket](c).Payload) == 0 {
		got++
	}
	if dropped := s.Stats().MessagesDropped; got != most || dropped != n-most {
		t.Errorf("%d messages received, %d dropped, want %d and %d", got, dropped, most, n-most)
	}
}

// TestUnreleasedMessagesAreBounded checks that the broker remembers at most 64 unfinished QoS 2 messages of a client.
func TestUnreleasedMessagesAreBounded(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	connect(c, "c")
	for id := range uint16(65) {
		p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
		p.TopicName, p.Qos, p.MessageID = "x", 2, id+1
		c.Send(p)
		if id < 64 {
			brokers.Receive[*packets.PubrecPacket](c)
		}
	}
	wantClosed(t, c)
}

func TestOversizePacketDisconnects(t *testing.T) {
	s := start(t, broker.Options{MaxPacket: 1000})
	c := rawDial(t, s)
	connect(c, "c")
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload = "x", make([]byte, 1001)
	c.Send(p)
	wantClosed(t, c)
}

func TestHugeClaimBeforeConnectDisconnects(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	if _, err := c.Write([]byte{0x10, 0xff, 0xff, 0xff, 0x7f}); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, c)
}

func TestPacketIDsOfTheTwoDirectionsDoNotClash(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	connect(c, "c")
	if code := subscribe(c, 1, 1, "x"); code != 1 {
		t.Fatalf("SUBACK %d", code)
	}
	publisher := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "publisher"})
	publish := func() uint16 {
		t.Helper()
		if err := publisher.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}); err != nil {
			t.Fatal(err)
		}
		return brokers.Receive[*packets.PublishPacket](c).MessageID // never acknowledge
	}
	if code := subscribe(c, publish(), 1, "y"); code != 1 {
		t.Errorf("SUBSCRIBE with the broker's own packet id: SUBACK %#x", code)
	}
	un := packets.NewControlPacket(packets.Unsubscribe).(*packets.UnsubscribePacket)
	un.MessageID, un.Topics = publish(), []string{"x"}
	c.Send(un)
	brokers.Receive[*packets.UnsubackPacket](c)
	for _, topic := range []string{"x", "y"} {
		if err := publisher.Publish(mqtt.Message{Topic: topic}); err != nil {
			t.Fatal(err)
		}
	}
	if p := brokers.Receive[*packets.PublishPacket](c); p.TopicName != "y" {
		t.Errorf("still subscribed to %s", p.TopicName)
	}
}

// TestTakeover checks that a new connection can take over a client id from a connection that is about to end or has
// just disconnected.
func TestTakeover(t *testing.T) {
	s := start(t, broker.Options{})
	var before brokers.RawClient
	for i := range 300 {
		c := rawDial(t, s)
		if i%2 == 1 {
			before.Send(packets.NewControlPacket(packets.Disconnect))
		}
		connect(c, "c")
		if code := subscribe(c, 1, 0, "x"); code != 0 {
			t.Fatalf("SUBACK %d", code)
		}
		p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
		p.TopicName = "x"
		c.Send(p)
		brokers.Receive[*packets.PublishPacket](c)
		if i > 0 {
			wantClosed(t, before)
		}
		before = c
	}
	if clients := s.Stats().Clients; clients != 1 {
		t.Errorf("%d clients", clients)
	}
}

func TestAuthenticate(t *testing.T) {
	lines := make(chan string, 10)
	s := start(t, broker.Options{
		Logger: slog.New(slog.NewTextHandler(lineWriter(lines), nil)),
		Authenticate: func(clientID, user, password string) bool {
			if user == "panic" {
				panic("on purpose")
			}
			return clientID == "f-a" && user == "f-a" && password == "secret"
		},
	})
	// A panic inside mochi ends only this connection.
	bad := rawDial(t, s)
	connect := brokers.ConnectPacket(mqtt.Options{ClientID: "x", Username: "panic"})
	bad.Send(connect)
	wantClosed(t, bad)
	if line := logged(t, lines); !strings.Contains(line, "on purpose") {
		t.Errorf("logged %q", line)
	}

	wrong := rawDial(t, s)
	connect.Username = "f-a"
	wrong.Send(connect)
	if ack := brokers.Receive[*packets.ConnackPacket](wrong); ack.ReturnCode != packets.ErrRefusedNotAuthorised {
		t.Errorf("CONNACK %d", ack.ReturnCode)
	}
	if line := logged(t, lines); !strings.Contains(line, "invalid user name or password") {
		t.Errorf("logged %q", line)
	}
	mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "f-a", Username: "f-a", Password: "secret"})
}

func TestTooManyConnections(t *testing.T) {
	s := start(t, broker.Options{MaxConns: 2, MaxConnsPerIP: 10})
	first := rawDial(t, s)
	connect(first, "first")
	connect(rawDial(t, s), "second")
	wantClosed(t, rawDial(t, s))
	_ = first.Close()
	// The dial succeeds after the first connection has ended.
	mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "third", MaxReconnectDelay: 10 * time.Millisecond})
}

func TestTooManyConnectionsFromOneAddress(t *testing.T) {
	s := start(t, broker.Options{MaxConnsPerIP: 2})
	first := rawDial(t, s)
	connect(first, "first")
	connect(rawDial(t, s), "second")
	wantClosed(t, rawDial(t, s))
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := elsewhere.Dial("tcp", strings.TrimPrefix(s.URL(), "tcp://"))
	if err != nil && runtime.GOOS != "linux" {
		t.Skip("this system has one loopback address only")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience / 2))
	connect(brokers.NewRaw(t, conn, rawPatience), "elsewhere")
	_ = first.Close()
	// The dial succeeds after the first connection has ended.
	mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "third", MaxReconnectDelay: 10 * time.Millisecond})
}

// TestSilentStrangers checks that clients that hold all connections but send no CONNECT do not lock out another client.
// Only the oldest of their connections is closed.
func TestSilentStrangers(t *testing.T) {
	for name, o := range map[string]broker.Options{
		"of all": {MaxConns: 8, MaxConnsPerIP: 10}, "of one address": {MaxConns: 100, MaxConnsPerIP: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, o)
			strangers := make([]brokers.RawClient, 8)
			for i := range strangers {
				strangers[i] = rawDial(t, s)
			}
			mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "a", MaxReconnectDelay: 10 * time.Millisecond})
			wantClosed(t, strangers[0])
			connect(strangers[7], "a late one")
		})
	}
}

// TestRefusalsAreToldInBrief checks that a flood of refused connections produces a single log line.
func TestRefusalsAreToldInBrief(t *testing.T) {
	log := make(lineWriter, 100)
	s := start(t, broker.Options{MaxConns: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
	connect(rawDial(t, s), "first")
	for range 50 {
		wantClosed(t, rawDial(t, s))
	}
	if line := <-log; !strings.Contains(line, "refused connections") || len(log) != 0 {
		t.Errorf("%d more lines after %s", len(log), line)
	}
}

// TestSubscriptionsAreBounded checks that a client may have one subscription per neighbour and 32 further
// subscriptions. The client may repeat an existing subscription.
func TestSubscriptionsAreBounded(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	connect(c, "greedy")
	var filters []string
	const most = wire.MaxNeighbors + 32
	for i := range most + 1 {
		filters = append(filters, fmt.Sprint("f/", i))
	}
	c.Subscribe(1, 0, filters...)
	codes := brokers.Receive[*packets.SubackPacket](c).ReturnCodes
	if slices.Max(codes[:most]) != 0 || codes[most] != 0x80 {
		t.Errorf("codes %v", codes)
	}
	if first, other := subscribe(c, 2, 0, "f/0"), subscribe(c, 3, 0, "f/x"); first != 0 || other != 0x80 {
		t.Errorf("again %#x, another one %#x", first, other)
	}
}

func TestStartRefuses(t *testing.T) {
	taken := start(t, broker.Options{})
	for name, c := range map[string]struct {
		o    broker.Options
		want string
	}{
		"open to all":      {broker.Options{Listen: "0.0.0.0:0"}, "is not loopback: set Authenticate"},
		"open by omission": {broker.Options{Listen: ":0"}, "is not loopback: set Authenticate"},
		"no port":          {broker.Options{Listen: "127.0.0.1"}, "is not host:port"},
		"huge packets":     {broker.Options{MaxPacket: 4<<20 + 1}, "at most 4 MiB"},
		"open with TLS": {broker.Options{Listen: "0.0.0.0:0",
			TLS: &tls.Config{Certificates: make([]tls.Certificate, 1), ClientAuth: tls.VerifyClientCertIfGiven}},
			"require TLS client certificates"},
		"no certificate": {broker.Options{TLS: &tls.Config{}}, "no server certificate"},
		"unchecked names": {broker.Options{Allow: func(string, string, bool) bool { return false }},
			"need verified user names"},
		"unchecked quota": {broker.Options{Quota: func(string) int { return 1 }}, "need verified user names"},
		"negative":        {broker.Options{MaxConnsPerIP: -1}, "must be positive"},
		"port taken":      {broker.Options{Listen: strings.TrimPrefix(taken.URL(), "tcp://")}, "cannot listen on"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := broker.Start(c.o)
			if err == nil {
				_ = s.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %q, want %q in it", err, c.want)
			}
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := start(t, broker.Options{})
	silent, client := rawDial(t, s), rawDial(t, s) // the first client sends no CONNECT
	connect(client, "client")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, silent)
	wantClosed(t, client)
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
