package mqtt

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

const (
	// readAhead is how many bytes are read at once where less is asked for: paho reads a packet's head byte by byte, a
	// system call each.
	readAhead = 4 << 10
	// maxJoinedPayloadBytes is the longest payload that is copied behind its packet's head, to be written with it by
	// one call.
	maxJoinedPayloadBytes = 4 << 10
	// brokerCloseTimeout bounds how long the broker's answer to DISCONNECT, which is to close the connection, is waited
	// for.
	brokerCloseTimeout = time.Second
)

// pingresp is the packet that ends paho's wait after a ping.
const pingresp = "\xd0\x00"

// linkConn is the network connection of a link. Paho speaks over it, but for the messages that come in, and those of
// QoS 0 that go out: paho copies each twice on its way in and once on its way out, and hands it from goroutine to
// goroutine. Of a PUBLISH that comes in paho sees nothing; the payload is read into the slice that its receiver gets.
//
// The session may end a link for a reason of its own. Paho takes a connection that was closed under it for one that was
// isClosed on purpose, and would report nothing; so reading returns the reason instead. All that comes in passes a
// guard.
//
// A message longer than the guard's limit is discarded as it arrives. That may take longer than paho waits for a
// PINGRESP, which the broker sends only behind the message. So linkConn gives paho a PINGRESP of its own each time
// that it has discarded as many bytes as the largest packet may have, which is progress enough for a live link.
type linkConn struct {
	net.Conn
	brokerReader       *bufio.Reader
	validator          *packetValidator
	meter              *TrafficMeter
	writeTimeout       time.Duration         // of a write
	onMessageReceived  func(Message)         // is called for each message, and never blocks
	onOversizedMessage func(ObservedMessage) // is called for each oversized message, and never blocks
	abortReason        atomic.Pointer[error]

	isDiscardingOversized bool          // the rest of an oversized message is being read
	discardedPacketID     uint16        // packet id of the message being discarded
	pendingPahoBytes      string        // given to paho ahead of the next bytes from the broker
	discardProgress       atomic.Uint64 // grows while an oversized message is being discarded
	hasSentDisconnect     atomic.Bool   // DISCONNECT is written
	readEnded             chan struct{} // closed when nothing more is read
	readEndOnce           sync.Once

	writeMu             sync.Mutex    // a packet at a time
	publishHeaderBuffer []byte        // of the message that is written
	commandWritten      chan struct{} // a packet that the session has asked paho for is written, or cannot be
}

func newLinkConn(conn net.Conn, o *Options, deliver func(Message), oversized func(ObservedMessage)) *linkConn {
	return &linkConn{
		Conn: conn, brokerReader: bufio.NewReaderSize(conn, readAhead), validator: newPacketValidator(o.MaxPacket),
		meter:        o.Meter,
		writeTimeout: o.WriteTimeout, onMessageReceived: deliver, onOversizedMessage: oversized,
		commandWritten: make(chan struct{},
			1),
		readEnded: make(chan struct{}),
	}
}

func (c *linkConn) abort(reason error) {
	c.abortReason.CompareAndSwap(nil, &reason)
	_ = c.Conn.Close()
}

// Close closes the connection. After DISCONNECT it waits until the broker has closed it: if something that has come
// were not read, the broker's system would tell it of a reset, and Mosquitto then holds the client for lost without
// reading on, and publishes its will.
func (c *linkConn) Close() error {
	if c.hasSentDisconnect.Load() {
		select {
		case <-c.readEnded:
		case <-time.After(brokerCloseTimeout):
		}
	}
	return c.Conn.Close()
}

// Read reads what is for paho, which never asks for bytes of two packets at once.
func (c *linkConn) Read(p []byte) (n int, err error) {
	if c.pendingPahoBytes == "" && (c.validator.parseStage == stagePacketType || c.isDiscardingOversized) {
		err = c.receiveUntilPahoPacket()
	}
	if c.pendingPahoBytes != "" {
		n = copy(p, c.pendingPahoBytes)
		c.pendingPahoBytes = c.pendingPahoBytes[n:]
	} else if err == nil {
		before := c.validator.packetCount
		n, err = c.readValidated(p)
		c.meter.AddTraffic(n, c.validator.packetCount-before)
	}
	if err != nil {
		c.readEndOnce.Do(func() { close(c.readEnded) })
		if reason := c.abortReason.Load(); reason != nil {
			err = *reason
		}
	}
	return n, err
}

// readValidated reads some bytes, past the guard.
func (c *linkConn) readValidated(p []byte) (int, error) {
	n, err := c.brokerReader.Read(p)
	if bad := c.validator.checkIncomingBytes(p[:n]); bad != nil {
		c.abort(bad)
		return 0, bad
	}
	return n, err
}

// receiveUntilPahoPacket delivers messages and discards oversized messages, until paho has a packet to read.
func (c *linkConn) receiveUntilPahoPacket() error {
	for {
		if c.isDiscardingOversized {
			if err := c.discardOversizedMessage(); err != nil || c.isDiscardingOversized {
				return err
			}
		}
		next, err := c.brokerReader.Peek(1)
		if err != nil || next[0]>>4 != packets.Publish {
			return err
		}
		m, id, err := c.readPublishHeader()
		if err != nil {
			return err
		}
		if c.validator.isOversized() {
			c.reportOversizedMessage(m)
			c.isDiscardingOversized, c.discardedPacketID = true, id
			continue
		}
		m.Payload = make([]byte, c.validator.packetBytesLeft)
		if err := c.readFull(m.Payload); err != nil {
			return err
		}
		c.meter.AddTraffic(m.packetSize(), 1)
		c.onMessageReceived(m)
		if err := c.acknowledgeMessage(m.QoS, id); err != nil {
			return err
		}
	}
}

// acknowledgeMessage answers a message of QoS 1. After an error the link is of no use: a part of the PUBACK may be
// written.
func (c *linkConn) acknowledgeMessage(qos QoS, id uint16) error {
	if qos == AtMostOnce {
		return nil
	}
	_, err := c.Write([]byte{packets.Puback << 4, 2, byte(id >> 8), byte(id)})
	return err
}

// reportOversizedMessage reports a message whose head was read, before its payload arrives.
func (c *linkConn) reportOversizedMessage(m Message) {
	g := c.validator
	c.meter.AddTraffic(g.packetBytes-g.packetBytesLeft, 1)
	c.onOversizedMessage(ObservedMessage{IsIncoming: true, Topic: m.Topic, PayloadBytes: g.packetBytesLeft,
		IsDropped:           true,
		OversizedPacketSize: g.packetBytes,
		ExceededSizeLimit:   g.maxPacketBytes})
}

// discardOversizedMessage reads the rest of an oversized message, up to the size of the largest packet, and keeps none
// of it. It acknowledges the message at its end.
func (c *linkConn) discardOversizedMessage() error {
	g, scratch := c.validator, make([]byte, readAhead)
	for rest := g.maxPacketBytes; g.packetBytesLeft > 0; {
		if rest == 0 {
			c.pendingPahoBytes = pingresp
			c.discardProgress.Add(1)
			return nil
		}
		n, err := c.readValidated(scratch[:min(len(scratch), g.packetBytesLeft, rest)])
		rest -= n
		c.meter.AddTraffic(n, 0)
		if err != nil && g.packetBytesLeft > 0 {
			return err
		}
	}
	c.isDiscardingOversized = false
	return c.acknowledgeMessage(QoS(g.typeAndFlags>>1&3), c.discardedPacketID)
}

// readPublishHeader reads a PUBLISH up to its payload (MQTT 3.1.1, 3.3), whose lengths the guard holds against each
// other.
func (c *linkConn) readPublishHeader() (m Message, id uint16, err error) {
	g, b := c.validator, make([]byte, 2)
	for g.parseStage != stageBodyRest && err == nil {
		err = c.readFull(b[:1])
	}
	if err != nil {
		return m, 0, err
	}
	m.QoS, m.Retained = QoS(g.typeAndFlags>>1&3), g.typeAndFlags&1 == 1
	topic := make([]byte, binary.BigEndian.Uint16(g.bodyHead[:]))
	if err := c.readFull(topic); err != nil {
		return m, 0, err
	}
	m.Topic = string(topic)
	if m.QoS > AtMostOnce {
		if err := c.readFull(b); err != nil {
			return m, 0, err
		}
		id = binary.BigEndian.Uint16(b)
	}
	return m, id, nil
}

func (c *linkConn) readFull(p []byte) error {
	for len(p) > 0 {
		n, err := c.readValidated(p)
		if p = p[n:]; err != nil && len(p) > 0 {
			return err
		}
	}
	return nil
}

// Write writes a packet of paho's, which writes each with one call.
func (c *linkConn) Write(p []byte) (int, error) {
	c.validator.recordOutgoingSubscribe(p)
	c.writeMu.Lock()
	n, err := c.writePacket(p)
	c.hasSentDisconnect.Store(p[0]>>4 == packets.Disconnect)
	c.writeMu.Unlock()
	if isPahoCommand(p) {
		c.commandWritten <- struct{}{}
	}
	return int(n), err
}

// isPahoCommand reports whether a packet is one that the session asks paho for, once it is connected.
func isPahoCommand(packet []byte) bool {
	switch packet[0] >> 4 {
	case packets.Publish, packets.Subscribe, packets.Unsubscribe:
		return true
	}
	return false
}

// publishQoS0 writes a message of QoS 0.
func (c *linkConn) publishQoS0(m *Message) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.publishHeaderBuffer = appendPublishHeader(c.publishHeaderBuffer[:0], m)
	if len(m.Payload) <= maxJoinedPayloadBytes {
		c.publishHeaderBuffer = append(c.publishHeaderBuffer, m.Payload...)
		_, err := c.writePacket(c.publishHeaderBuffer)
		return err
	}
	_, err := c.writePacket(c.publishHeaderBuffer, m.Payload)
	return err
}

// SetWriteDeadline does nothing. Paho sets one before a packet and clears it after it, which may be in the middle of
// another one: write sets them.
func (c *linkConn) SetWriteDeadline(time.Time) error { return nil }

// writePacket writes a packet. The caller has locked writeMu.
func (c *linkConn) writePacket(pieces ...[]byte) (int64, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.writeTimeout)) // an error shows when writing
	buffers := net.Buffers(pieces)
	n, err := buffers.WriteTo(c.Conn)
	_ = c.Conn.SetWriteDeadline(time.Time{})
	c.meter.AddTraffic(int(n), 1)
	return n, err
}

// appendPublishHeader appends a PUBLISH of QoS 0 up to its payload.
func appendPublishHeader(dst []byte, m *Message) []byte {
	flags := byte(0)
	if m.Retained {
		flags = 1
	}
	dst = append(dst, packets.Publish<<4|flags)
	dst = binary.AppendUvarint(dst, uint64(2+len(m.Topic)+len(m.Payload))) // MQTT's lengths are varints
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Topic)))
	return append(dst, m.Topic...)
}
