package broker_test

import (
	"context"
	"errors"
	"io"
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

func start(t testing.TB, o broker.Options) *broker.Server {
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
func dial(t testing.TB, o mqtt.Options) *mqtt.Session {
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

func event(t testing.TB, c mqtt.Conn) mqtt.Event {
	t.Helper()
	select {
	case e := <-c.Events():
		return e
	case <-time.After(patience):
		t.Fatal("no event in time")
		return nil
	}
}

func received(t testing.TB, c mqtt.Conn) mqtt.Message {
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
	t testing.TB
	net.Conn
}

func rawDial(t testing.TB, s *broker.Server) rawClient {
	t.Helper()
	return rawDialURL(t, s.URL())
}

func rawDialURL(t testing.TB, url string) rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "tcp://"))
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

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// logged takes the next line.
func logged(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(patience):
		t.Fatal("nothing was logged in time")
		return ""
	}
}
