package conformance

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// rawClient speaks MQTT by hand.
type rawClient struct {
	t testing.TB
	net.Conn
}

// reach opens a connection, with the user's TLS where there is any. It says
// nothing yet.
func (b *broker) reach(t testing.TB, o mqtt.Options) rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // so that a stalled one soon is
	_ = conn.SetDeadline(time.Now().Add(patience))
	if o.TLS == nil {
		return rawClient{t, conn}
	}
	config := o.TLS.Clone()
	config.ServerName = "127.0.0.1"
	return rawClient{t, tls.Client(conn, config)}
}

func (c rawClient) send(p packets.ControlPacket) {
	c.t.Helper()
	if err := p.Write(c); err != nil {
		c.t.Fatal(err)
	}
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

// connect logs a user in by hand.
func (b *broker) connect(t testing.TB, user string) rawClient {
	t.Helper()
	o := b.as(user)
	c := b.reach(t, o)
	connect := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	connect.ProtocolName, connect.ProtocolVersion = "MQTT", 4
	connect.CleanSession, connect.ClientIdentifier, connect.Keepalive = true, user, 600
	if o.Username != "" {
		connect.UsernameFlag, connect.Username = true, o.Username
		connect.PasswordFlag, connect.Password = true, []byte(o.Password)
	}
	c.send(connect)
	if ack := receive[*packets.ConnackPacket](c); ack.ReturnCode != 0 {
		t.Fatalf("CONNACK %d", ack.ReturnCode)
	}
	return c
}

func (c rawClient) subscribe(qos byte, filters ...string) {
	c.t.Helper()
	p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	p.MessageID = 1
	for _, f := range filters {
		p.Topics, p.Qoss = append(p.Topics, f), append(p.Qoss, qos)
	}
	c.send(p)
}

// stallPatience is how long a healthy client may wait for one message: less than
// the embedded broker's write timeout, which would end the stalled ones.
const stallPatience = 15 * time.Second

// testStalled has ten clients that ask for everything and read nothing. The
// healthy ones get a stream, and then a model and a round, while those have not
// read a byte: that they finish at all is what is tested.
func testStalled(t *testing.T, s subject) {
	const stalled, healthy, n, size = 10, 3, 600, 60 << 10 // 35 MB: more than sockets and queues hold
	b := s.start(t, needs{agents: 5})
	var blocked []rawClient
	for i := range stalled {
		c := b.connect(t, anyOne(i))
		c.subscribe(byte(i%2), "#")
		receive[*packets.SubackPacket](c)
		blocked = append(blocked, c)
	}
	var readers []*mqtt.Session
	for i := range healthy {
		r := dial(t, b.as(anyOne(stalled+i)))
		r.Subscribe(mqtt.AtLeastOnce, "stream")
		settle(t, r)
		readers = append(readers, r)
	}
	publisher := dial(t, b.as(anyOne(stalled+healthy)))
	for i := range n { // one at a time: the healthy ones keep up by construction
		payload := make([]byte, size)
		copy(payload, fmt.Sprintf("%06d", i))
		publish(t, publisher, mqtt.Message{Topic: "stream", Payload: payload, QoS: mqtt.AtLeastOnce})
		for _, r := range readers {
			if m := receivedWithin(t, r, stallPatience); len(m.Payload) != size || string(m.Payload[:6]) != fmt.Sprintf("%06d", i) {
				t.Fatalf("message %d has %d bytes and begins with %.6s", i, len(m.Payload), m.Payload)
			}
		}
	}
	ref := retain(t, publisher, blobOf(2, 20*wire.MaxChunk))
	wantBlob(t, b.as(anyOne(stalled+healthy+1)), topicsOf(t), ref, nowhere{})
	f := newFleet(t, b, 5)
	f.startCoordinator(1)
	for i := range 5 {
		f.startAgent(i, nil)
	}
	f.wantRound(time.Minute)
	f.wantRound(time.Minute)
	f.stop()
	for _, c := range blocked {
		_ = c.Close()
	}
	t.Logf("the broker needed %d MiB", b.proc.Memory(t, "VmHWM")>>20)
}
