package conformance

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// reach opens a network connection to the broker without sending packets. It uses the TLS configuration of the options
// if the broker requires TLS.
func (b *broker) reach(t testing.TB, o mqtt.Options, patience time.Duration) brokers.RawClient {
	t.Helper()
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if o.TLS == nil {
		return brokers.NewRaw(t, conn, patience)
	}
	config := o.TLS.Clone()
	config.ServerName = "127.0.0.1"
	return brokers.NewRaw(t, tls.Client(conn, config), patience)
}

// connect opens a raw MQTT connection as a user.
func (b *broker) connect(t testing.TB, user string, patience time.Duration) brokers.RawClient {
	t.Helper()
	o := b.as(user)
	c := b.reach(t, o, patience)
	c.Connect(o)
	return c
}

// stallPatience is the time within which a healthy client must receive each message. It is shorter than the write
// timeout of the embedded broker, after which the broker would disconnect the stalled clients.
const stallPatience = 15 * time.Second

// testStalled runs ten clients that subscribe to all topics and read nothing. Meanwhile, healthy clients must receive a
// stream of messages, download a model, and complete a round.
func testStalled(t *testing.T, s subject) {
	const stalled, healthy, n, size = 10, 3, 600, 60 << 10
	b := s.start(t, needs{agents: 5})
	var blocked []brokers.RawClient
	for i := range stalled {
		c := b.connect(t, anyOne(i), patience)
		c.Subscribe(1, byte(i%2), "#")
		brokers.Receive[*packets.SubackPacket](c)
		blocked = append(blocked, c)
	}
	var readers []*mqtt.Session
	for i := range healthy {
		r := mqtttest.Dial(t, b.as(anyOne(stalled+i)))
		r.Subscribe(mqtt.AtLeastOnce, "stream")
		mqtttest.SyncWithBroker(t, r)
		readers = append(readers, r)
	}
	publisher := mqtttest.Dial(t, b.as(anyOne(stalled+healthy)))
	for i := range n {
		payload := make([]byte, size)
		copy(payload, fmt.Sprintf("%06d", i))
		mqtttest.Publish(t, publisher, mqtt.Message{Topic: "stream", Payload: payload, QoS: mqtt.AtLeastOnce})
		for _, r := range readers {
			if m := mqtttest.ReceivedWithin(t, r, stallPatience); len(m.Payload) != size ||
				string(m.Payload[:6]) != fmt.Sprintf("%06d", i) {
				t.Fatalf("message %d has %d bytes and begins with %.6s", i, len(m.Payload), m.Payload)
			}
		}
	}
	ref := retain(t, publisher, blobOf(2, 20*wire.MaxChunkBytes))
	wantBlob(t, b.as(anyOne(stalled+healthy+1)), hosts.TopicsOf(t, federation), ref, nowhere{})
	f := newFleet(t, b, 5)
	f.startCoordinator(1)
	for i := range 5 {
		f.startAgent(i, nil)
	}
	f.wantRound(time.Minute)
	f.wantRound(time.Minute)
	f.Stop()
	for _, c := range blocked {
		_ = c.Close()
	}
	b.logMemory(t)
}
