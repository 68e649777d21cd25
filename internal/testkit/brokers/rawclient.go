package brokers

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/mqtt"
)

// RawClient is an MQTT client that sends individual packets. Tests use it to send packet sequences that mqtt.Session
// never sends.
type RawClient struct {
	net.Conn
	t        testing.TB
	patience time.Duration
}

// NewRaw returns a client that uses an open connection. The connection is closed at the end of the test. patience is
// the timeout of each read.
func NewRaw(t testing.TB, conn net.Conn, patience time.Duration) RawClient {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	return RawClient{conn, t, patience}
}

// Send writes one MQTT packet to the connection.
func (c RawClient) Send(p packets.ControlPacket) {
	c.t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(c.patience))
	if err := p.Write(c); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// Receive reads the next MQTT packet. It fails the test if the packet is not of type P.
func Receive[P packets.ControlPacket](c RawClient) P {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(c.patience))
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

// ConnectPacket returns the CONNECT packet of a client with a clean session. Its keepalive interval is long, so that
// tests need not send PINGREQ packets.
func ConnectPacket(o mqtt.Options) *packets.ConnectPacket {
	p := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	p.ProtocolName, p.ProtocolVersion, p.CleanSession, p.Keepalive = "MQTT", 4, true, 600
	p.ClientIdentifier, p.Username, p.Password = o.ClientID, o.Username, []byte(o.Password)
	p.UsernameFlag, p.PasswordFlag = o.Username != "", o.Password != ""
	return p
}

// Connect sends a CONNECT packet and waits until the broker accepts the connection.
func (c RawClient) Connect(o mqtt.Options) {
	c.t.Helper()
	c.Send(ConnectPacket(o))
	if ack := Receive[*packets.ConnackPacket](c); ack.ReturnCode != 0 {
		c.t.Fatalf("CONNACK %d", ack.ReturnCode)
	}
}

// Subscribe sends a SUBSCRIBE packet. Subscribe does not wait for the SUBACK packet.
func (c RawClient) Subscribe(id uint16, qos byte, filters ...string) {
	c.t.Helper()
	p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	p.MessageID = id
	for _, f := range filters {
		p.Topics, p.Qoss = append(p.Topics, f), append(p.Qoss, qos)
	}
	c.Send(p)
}

// Closed waits until the broker closes the connection. Closed returns false after a timeout.
func (c RawClient) Closed() bool {
	_ = c.SetReadDeadline(time.Now().Add(c.patience))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Retained returns the topics of a federation that match the filter and have a retained message on the broker.
func Retained(t testing.TB, address, federation, filter string) (topics []string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := NewRaw(t, conn, patience)
	c.Connect(mqtt.Options{ClientID: "reader"})
	c.Subscribe(1, 0, "fl/v1/"+federation+"/"+filter)
	Receive[*packets.SubackPacket](c)
	c.Send(packets.NewControlPacket(packets.Pingreq))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for {
		p, err := packets.ReadPacket(c)
		if err != nil {
			t.Fatal(err)
		}
		switch p := p.(type) {
		// The broker answers the ping after it has sent all retained messages, so the list is complete.
		case *packets.PingrespPacket:
			return topics
		case *packets.PublishPacket:
			topics = append(topics, p.TopicName)
		}
	}
}
