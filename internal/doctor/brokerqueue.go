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

// checkQueueLength checks how many messages the broker queues for a reader that does not acknowledge them. A minimal
// MQTT client sends all messages to itself before it acknowledges the first message.
func (b *BrokerTarget) checkQueueLength(ctx context.Context, r *findingReporter) {
	if b.WantedQueueLength == 0 {
		return
	}
	u, err := url.Parse(b.Options.URL)
	if err != nil || b.Options.Proxy != nil || u.Scheme == "ws" || u.Scheme == "wss" {
		r.addFinding("queue", Skipped, "", "the queue limit of the broker was not checked: the check requires a tcp "+
			"or tls connection without a proxy")
		return
	}
	kept, err := b.measureQueueLength(ctx, u, b.WantedQueueLength)
	switch {
	case err != nil:
		r.addFinding("queue", Skipped, "", "check failed: %v", err)
	case kept < b.WantedQueueLength:
		r.addFinding("queue", Bad,
			fmt.Sprintf("increase the queue limit (Mosquitto: max_queued_messages %d; the default is 1000 in version "+
				"2, 100 in version 1)", b.WantedQueueLength),
			"the broker accepted %d messages for a slow reader and silently dropped %d of them: agents would have to "+
				"send updates repeatedly if many arrive at once",
			b.WantedQueueLength, b.WantedQueueLength-kept)
	default:
		r.addGoodFinding("queue", "the broker can queue at least %d messages for a slow reader", b.WantedQueueLength)
	}
}

// measureQueueLength sends n messages and returns the number of messages that the broker delivered.
func (b *BrokerTarget) measureQueueLength(ctx context.Context, u *url.URL, n int) (came int, err error) {
	var conn net.Conn
	d := net.Dialer{Timeout: answerTimeout}
	if u.Scheme == "tcp" || u.Scheme == "mqtt" {
		conn, err = d.DialContext(ctx, "tcp", u.Host)
	} else {
		conn, err = (&tls.Dialer{NetDialer: &d, Config: b.Options.TLS}).DialContext(ctx, "tcp", u.Host)
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	// A deadline in the past interrupts blocked reads and writes.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := &rawMQTTClient{conn: conn}
	if err := c.connectAndSubscribe(b); err != nil {
		return 0, err
	}
	taken := 0
	var waiting []uint16
	for sent := 0; taken < n; {
		if sent < n && sent-taken < 100 {
			sent++
			c.sendPacket(newPublish(b.SelfTestTopic, uint16(sent)))
			continue
		}
		p, err := c.readPacket()
		switch p := p.(type) {
		case nil:
			return 0, err
		case *packets.PubackPacket:
			taken++
		case *packets.PublishPacket:
			waiting = append(waiting, p.MessageID)
		}
	}
	for { // acknowledge all messages until no more arrive
		for _, id := range waiting {
			came++
			c.acknowledgePublish(id)
		}
		waiting = waiting[:0]
		if came >= n {
			return came, c.firstErr
		}
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // if this fails, the next read returns the error
		p, err := packets.ReadPacket(conn)
		var quiet net.Error
		switch {
		case errors.As(err, &quiet) && quiet.Timeout():
			return came, c.firstErr
		case err != nil:
			return came, err
		}
		if m, ok := p.(*packets.PublishPacket); ok {
			waiting = append(waiting, m.MessageID)
		}
	}
}

// rawMQTTClient sends and reads single MQTT packets. rawMQTTClient keeps the first error.
type rawMQTTClient struct {
	conn     net.Conn
	firstErr error
}

func (c *rawMQTTClient) sendPacket(p packets.ControlPacket) {
	if c.firstErr == nil {
		_ = c.conn.SetDeadline(time.Now().Add(answerTimeout)) // if this fails, the write returns the error
		c.firstErr = p.Write(c.conn)
	}
}

func (c *rawMQTTClient) readPacket() (packets.ControlPacket, error) {
	if c.firstErr != nil {
		return nil, c.firstErr
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(answerTimeout)) // if this fails, the read returns the error
	return packets.ReadPacket(c.conn)
}

func (c *rawMQTTClient) acknowledgePublish(id uint16) {
	p := packets.NewControlPacket(packets.Puback).(*packets.PubackPacket)
	p.MessageID = id
	c.sendPacket(p)
}

// connectAndSubscribe connects and subscribes to the self-test topic.
func (c *rawMQTTClient) connectAndSubscribe(b *BrokerTarget) error {
	hello := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	hello.ProtocolName, hello.ProtocolVersion, hello.CleanSession, hello.Keepalive = "MQTT", 4, true, 60
	hello.ClientIdentifier, hello.Username, hello.Password = b.Options.ClientID, b.Options.Username,
		[]byte(b.Options.Password)
	hello.UsernameFlag, hello.PasswordFlag = hello.Username != "", len(hello.Password) > 0
	c.sendPacket(hello)
	if p, err := c.readPacket(); err != nil {
		return err
	} else if ack, ok := p.(*packets.ConnackPacket); !ok || ack.ReturnCode != packets.Accepted {
		return fmt.Errorf("unexpected reply from the broker: %v", p)
	}
	s := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	s.MessageID, s.Topics, s.Qoss = 1, []string{b.SelfTestTopic}, []byte{byte(mqtt.AtLeastOnce)}
	c.sendPacket(s)
	for {
		p, err := c.readPacket()
		if err != nil {
			return err
		}
		if ack, ok := p.(*packets.SubackPacket); ok {
			if len(ack.ReturnCodes) != 1 || ack.ReturnCodes[0] == mqtt.SubackFailure {
				return fmt.Errorf("the broker rejected the subscription to %s", b.SelfTestTopic)
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
