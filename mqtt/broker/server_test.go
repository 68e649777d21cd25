package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// patience bounds each wait for an event; no test waits that long.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o broker.Options) *broker.Server {
	t.Helper()
	s, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// dial returns a session that is up.
func dial(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if e := event(t, s); e != (mqtt.Up{}) {
		t.Fatalf("first event is %#v, want Up", e)
	}
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

// rawClient speaks MQTT by hand.
type rawClient struct {
	t *testing.T
	net.Conn
}

func rawDial(t *testing.T, s *broker.Server) rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience / 2)) // before the broker gives up by itself
	return rawClient{t, conn}
}

func (c rawClient) send(p packets.ControlPacket) {
	c.t.Helper()
	if err := p.Write(c); err != nil {
		c.t.Fatal(err)
	}
}

func (c rawClient) connect(id string) {
	c.t.Helper()
	connect := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	connect.ProtocolName, connect.ProtocolVersion = "MQTT", 4
	connect.CleanSession, connect.ClientIdentifier, connect.Keepalive = true, id, 60
	c.send(connect)
	if ack := receive[*packets.ConnackPacket](c); ack.ReturnCode != 0 {
		c.t.Fatalf("CONNACK %d", ack.ReturnCode)
	}
}

func (c rawClient) subscribe(id uint16, qos byte, filter string) byte {
	c.t.Helper()
	p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	p.MessageID, p.Topics, p.Qoss = id, []string{filter}, []byte{qos}
	c.send(p)
	return receive[*packets.SubackPacket](c).ReturnCodes[0]
}

// receive reads the next packet, which has to be a P.
func receive[P packets.ControlPacket](c rawClient) P {
	c.t.Helper()
	p, err := packets.ReadPacket(c)
	if err != nil {
		c.t.Fatalf("reading: %v", err)
	}
	want, ok := p.(P)
	if !ok {
		c.t.Fatalf("got %v, want %T", p, want)
	}
	return want
}

// closed waits for the end of the connection.
func (c rawClient) closed() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && isTimeout(err) {
		c.t.Fatal("the connection is still open")
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestRoundTripAndRetained(t *testing.T) {
	s := start(t, broker.Options{})
	a := dial(t, mqtt.Options{URL: s.URL(), ClientID: "a"})
	b := dial(t, mqtt.Options{URL: s.URL(), ClientID: "b"})
	b.Subscribe(mqtt.AtLeastOnce, "x/+")
	payload := bytes.Repeat([]byte{7}, 60<<10)
	// Retained, so it does not matter whether the subscription comes first.
	if err := a.Publish(mqtt.Message{Topic: "x/1", Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true}); err != nil {
		t.Fatal(err)
	}
	if m := received(t, b); m.Topic != "x/1" || !bytes.Equal(m.Payload, payload) {
		t.Errorf("got %s with %d bytes", m.Topic, len(m.Payload))
	}
	late := dial(t, mqtt.Options{URL: s.URL(), ClientID: "late"})
	late.Subscribe(mqtt.AtMostOnce, "x/1")
	if m := received(t, late); !m.Retained || !bytes.Equal(m.Payload, payload) {
		t.Errorf("late subscriber got retained %v with %d bytes", m.Retained, len(m.Payload))
	}
	stats := s.Stats()
	if stats.Clients != 3 || stats.MessagesIn != 1 || stats.BytesIn < int64(len(payload)) || stats.BytesOut < int64(len(payload)) || stats.MessagesDropped != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

func TestRetainedBurst(t *testing.T) {
	const n = 1000 // as many as Mosquitto would queue
	s := start(t, broker.Options{})
	a := dial(t, mqtt.Options{URL: s.URL(), ClientID: "a", OutboxMessages: n})
	for i := range n {
		if err := a.Publish(mqtt.Message{Topic: fmt.Sprintf("p/%d", i), Payload: []byte("online"), QoS: mqtt.AtMostOnce, Retained: true}); err != nil {
			t.Fatal(err)
		}
	}
	a.Subscribe(mqtt.AtMostOnce, "p/0") // answered after all of them
	received(t, a)
	late := dial(t, mqtt.Options{URL: s.URL(), ClientID: "late", MailboxMessages: n})
	late.Subscribe(mqtt.AtMostOnce, "p/+")
	for range n {
		received(t, late)
	}
	if dropped := s.Stats().MessagesDropped; dropped != 0 {
		t.Errorf("%d messages dropped", dropped)
	}
}

func TestStalledSubscriberDelaysNobody(t *testing.T) {
	const n, size = 600, 60 << 10 // 35 MB: more than sockets and the queue hold
	s := start(t, broker.Options{})
	stalled := rawDial(t, s)
	stalled.connect("stalled")
	if code := stalled.subscribe(1, 1, "x"); code != 1 {
		t.Fatalf("SUBACK %d", code)
	} // and reads nothing any more
	healthy := dial(t, mqtt.Options{URL: s.URL(), ClientID: "healthy"})
	healthy.Subscribe(mqtt.AtLeastOnce, "x", "ready")
	if err := healthy.Publish(mqtt.Message{Topic: "ready"}); err != nil {
		t.Fatal(err)
	}
	received(t, healthy)

	publisher := dial(t, mqtt.Options{URL: s.URL(), ClientID: "publisher"})
	for i := range n { // one at a time: the healthy one keeps up by construction
		if err := publisher.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, size), QoS: mqtt.AtLeastOnce}); err != nil {
			t.Fatal(err)
		}
		if m := received(t, healthy); len(m.Payload) != size {
			t.Fatalf("message %d has %d bytes", i, len(m.Payload))
		}
	}
	if stats := s.Stats(); stats.ClosedAsSlow != 1 {
		t.Errorf("stats are %+v, want one connection closed as slow", stats)
	}
	stalled.closed()
}

func TestOversizePacketDisconnects(t *testing.T) {
	s := start(t, broker.Options{MaxPacket: 1000})
	c := rawDial(t, s)
	c.connect("c")
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload = "x", make([]byte, 1001)
	c.send(p)
	c.closed()
}

func TestHugeClaimBeforeConnectDisconnects(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	if _, err := c.Write([]byte{0x10, 0xff, 0xff, 0xff, 0x7f}); err != nil { // CONNECT of 256 MiB
		t.Fatal(err)
	}
	c.closed()
}

func TestPacketIDsOfTheTwoDirectionsDoNotClash(t *testing.T) {
	s := start(t, broker.Options{})
	c := rawDial(t, s)
	c.connect("c")
	if code := c.subscribe(1, 1, "x"); code != 1 {
		t.Fatalf("SUBACK %d", code)
	}
	publisher := dial(t, mqtt.Options{URL: s.URL(), ClientID: "publisher"})
	publish := func() uint16 {
		t.Helper()
		if err := publisher.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}); err != nil {
			t.Fatal(err)
		}
		return receive[*packets.PublishPacket](c).MessageID // never acknowledged
	}
	if code := c.subscribe(publish(), 1, "y"); code != 1 {
		t.Errorf("SUBSCRIBE with the broker's own packet id: SUBACK %#x", code)
	}
	un := packets.NewControlPacket(packets.Unsubscribe).(*packets.UnsubscribePacket)
	un.MessageID, un.Topics = publish(), []string{"x"}
	c.send(un)
	receive[*packets.UnsubackPacket](c)
	for _, topic := range []string{"x", "y"} {
		if err := publisher.Publish(mqtt.Message{Topic: topic}); err != nil {
			t.Fatal(err)
		}
	}
	if p := receive[*packets.PublishPacket](c); p.TopicName != "y" {
		t.Errorf("still subscribed to %s", p.TopicName)
	}
}

// Each connection takes the client id over from one that is about to end, or
// has just said goodbye.
func TestTakeover(t *testing.T) {
	s := start(t, broker.Options{})
	var before rawClient
	for i := range 300 {
		c := rawDial(t, s)
		if i%2 == 1 {
			before.send(packets.NewControlPacket(packets.Disconnect))
		}
		c.connect("c")
		if code := c.subscribe(1, 0, "x"); code != 0 {
			t.Fatalf("SUBACK %d", code)
		}
		p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
		p.TopicName = "x"
		c.send(p)
		receive[*packets.PublishPacket](c)
		if i > 0 {
			before.closed()
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
	// A panic inside mochi ends one connection, not the process.
	bad := rawDial(t, s)
	connect := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	connect.ProtocolName, connect.ProtocolVersion = "MQTT", 4
	connect.ClientIdentifier, connect.UsernameFlag, connect.Username = "x", true, "panic"
	connect.CleanSession = true
	bad.send(connect)
	bad.closed()
	if line := <-lines; !strings.Contains(line, "on purpose") {
		t.Errorf("logged %q", line)
	}

	wrong := rawDial(t, s)
	connect.Username = "f-a"
	wrong.send(connect)
	if ack := receive[*packets.ConnackPacket](wrong); ack.ReturnCode != packets.ErrRefusedNotAuthorised {
		t.Errorf("CONNACK %d", ack.ReturnCode)
	}
	if line := <-lines; !strings.Contains(line, "refused a client's user name") {
		t.Errorf("logged %q", line)
	}
	dial(t, mqtt.Options{URL: s.URL(), ClientID: "f-a", Username: "f-a", Password: "secret"})
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestTooManyConnections(t *testing.T) {
	s := start(t, broker.Options{MaxConns: 2})
	first := rawDial(t, s)
	first.connect("first")
	rawDial(t, s).connect("second")
	rawDial(t, s).closed()
	_ = first.Close()
	dial(t, mqtt.Options{URL: s.URL(), ClientID: "third", MaxReconnectDelay: 10 * time.Millisecond}) // once the first is gone
}

func TestStartRefuses(t *testing.T) {
	taken := start(t, broker.Options{})
	for name, c := range map[string]struct {
		o    broker.Options
		want string
	}{
		"open to all":      {broker.Options{Listen: "0.0.0.0:0"}, "needs an Authenticate function"},
		"open by omission": {broker.Options{Listen: ":0"}, "needs an Authenticate function"},
		"no port":          {broker.Options{Listen: "127.0.0.1"}, "is not host:port"},
		"huge packets":     {broker.Options{MaxPacket: 1 << 30}, "up to 256 MiB"},
		"port taken":       {broker.Options{Listen: strings.TrimPrefix(taken.URL(), "tcp://")}, "cannot listen on"},
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
	silent, client := rawDial(t, s), rawDial(t, s) // the one sends no CONNECT
	client.connect("client")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	silent.closed()
	client.closed()
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
