package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/mqtt"
)

// queue examines how many messages the broker keeps for a reader that does
// not acknowledge: a client of its own, on the bare protocol, sends them to
// itself, all before it acknowledges the first.
func (b *BrokerExamined) queue(ctx context.Context, r *report) {
	if b.Queue == 0 {
		return
	}
	u, err := url.Parse(b.Options.URL)
	if err != nil || b.Options.Proxy != nil || u.Scheme == "ws" || u.Scheme == "wss" {
		r.add("queue", Skipped, "", "is examined over tcp and tls without a proxy only")
		return
	}
	kept, err := b.fill(ctx, u, b.Queue)
	switch {
	case err != nil:
		r.add("queue", Skipped, "", "could not be examined: %v", err)
	case kept < b.Queue:
		r.add("queue", Bad, fmt.Sprintf("let it keep as many as there are agents (Mosquitto: max_queued_messages %d; "+
			"2.x has 1000 unless told, 1.x 100)", b.Queue),
			"the broker took %d messages for a slow reader and lost %d of them without a word: updates that come "+
				"together would be sent again and again",
			b.Queue, b.Queue-kept)
	default:
		r.good("queue", "the broker keeps %d messages for a slow reader", b.Queue)
	}
}

// fill sends n messages and returns how many came back.
func (b *BrokerExamined) fill(ctx context.Context, u *url.URL, n int) (came int, err error) {
	var conn net.Conn
	d := net.Dialer{Timeout: patience}
	if u.Scheme == "tcp" || u.Scheme == "mqtt" {
		conn, err = d.DialContext(ctx, "tcp", u.Host)
	} else {
		conn, err = (&tls.Dialer{NetDialer: &d, Config: b.Options.TLS}).DialContext(ctx, "tcp", u.Host)
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // which only closes sooner
	defer stop()
	c := &bare{conn: conn}
	if err := c.open(b); err != nil {
		return 0, err
	}
	taken := 0
	var waiting []uint16
	for sent := 0; taken < n; {
		if sent < n && sent-taken < 100 {
			sent++
			c.send(newPublish(b.Loop, uint16(sent)))
			continue
		}
		p, err := c.read()
		switch p := p.(type) {
		case nil:
			return 0, err
		case *packets.PubackPacket:
			taken++
		case *packets.PublishPacket:
			waiting = append(waiting, p.MessageID)
		}
	}
	for { // now the reader is a quick one
		for _, id := range waiting {
			came++
			c.ack(id)
		}
		waiting = waiting[:0]
		if came >= n {
			return came, c.err
		}
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // an error shows in the read
		p, err := packets.ReadPacket(conn)
		var quiet net.Error
		switch {
		case errors.As(err, &quiet) && quiet.Timeout():
			return came, c.err
		case err != nil:
			return came, err
		}
		if m, ok := p.(*packets.PublishPacket); ok {
			waiting = append(waiting, m.MessageID)
		}
	}
}

// bare is a client that does nothing by itself. The first error stays.
type bare struct {
	conn net.Conn
	err  error
}

func (c *bare) send(p packets.ControlPacket) {
	if c.err == nil {
		_ = c.conn.SetDeadline(time.Now().Add(patience)) // an error shows in the write
		c.err = p.Write(c.conn)
	}
}

func (c *bare) read() (packets.ControlPacket, error) {
	if c.err != nil {
		return nil, c.err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(patience)) // an error shows in the read
	return packets.ReadPacket(c.conn)
}

func (c *bare) ack(id uint16) {
	p := packets.NewControlPacket(packets.Puback).(*packets.PubackPacket)
	p.MessageID = id
	c.send(p)
}

// open connects, and subscribes to the loop.
func (c *bare) open(b *BrokerExamined) error {
	hello := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	hello.ProtocolName, hello.ProtocolVersion, hello.CleanSession, hello.Keepalive = "MQTT", 4, true, 60
	hello.ClientIdentifier, hello.Username, hello.Password = b.Options.ClientID, b.Options.Username,
		[]byte(b.Options.Password)
	hello.UsernameFlag, hello.PasswordFlag = hello.Username != "", len(hello.Password) > 0
	c.send(hello)
	if p, err := c.read(); err != nil {
		return err
	} else if ack, ok := p.(*packets.ConnackPacket); !ok || ack.ReturnCode != packets.Accepted {
		return fmt.Errorf("the broker answers with %v", p)
	}
	s := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	s.MessageID, s.Topics, s.Qoss = 1, []string{b.Loop}, []byte{byte(mqtt.AtLeastOnce)}
	c.send(s)
	for {
		p, err := c.read()
		if err != nil {
			return err
		}
		if ack, ok := p.(*packets.SubackPacket); ok {
			if len(ack.ReturnCodes) != 1 || ack.ReturnCodes[0] == mqtt.Refused {
				return fmt.Errorf("the broker refuses %s", b.Loop)
			}
			return nil
		}
	}
}

func newPublish(topic string, id uint16) *packets.PublishPacket {
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.Qos, p.MessageID, p.TopicName, p.Payload = 1, id, topic, make([]byte, 64)
	return p
}
