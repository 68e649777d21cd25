package mqtt

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
)

const (
	// maxUnacknowledgedPackets is the maximum number of sent packets that the broker has not acknowledged yet.
	maxUnacknowledgedPackets = 8
	// flushTimeout is the maximum time that Close spends sending the outbox.
	flushTimeout = 3 * time.Second
	// disconnectQuiesceMillis is the time in milliseconds that paho has to send DISCONNECT and to wait for the close.
	disconnectQuiesceMillis = 250 + uint(brokerCloseTimeout/time.Millisecond)
)

// brokerLink is one connection to the broker, with its own paho client. It does not use paho's automatic reconnection,
// which discards subscriptions, resends refused messages forever, has no jitter and cannot be interrupted.
type brokerLink struct {
	options  *Options
	client   paho.Client
	mailbox  *EventMailbox
	outbox   *outbox
	onSuback func(l *brokerLink, asked []subscription, codes map[string]byte)
	// onOversizedMessage is called for each oversized message.
	onOversizedMessage func(ObservedMessage)

	unconfirmedSends unconfirmedSends

	conn    atomic.Pointer[linkConn] // network connection; nil until it has been opened
	dialErr error                    // error that prevented opening conn; nil if conn is open

	pendingAcks chan pendingAck // sent packets that the broker has not acknowledged yet
	flushed     chan struct{}   // closed when all packets are sent and acknowledged
	ended       chan struct{}   // closed when the link has ended
	endOnce     sync.Once
	endErr      error // error that ended the link; valid after ended is closed
}

// pendingAck describes a packet that awaits the broker's acknowledgement.
type pendingAck struct {
	token            paho.Token
	subscriptions    []subscription // subscriptions in a SUBSCRIBE packet
	publishedMessage *Message       // message in a PUBLISH packet
	sendNumber       int            // number of the message in unconfirmedSends
}

// startSending starts the goroutines that send the outbox and await acknowledgements. The caller does not wait for
// these goroutines, because after a lost connection paho may block until the write timeout.
func (l *brokerLink) startSending() {
	go l.sendOutbox()
	go l.awaitAcks()
}

func (l *brokerLink) subscribe(wanted []subscription) {
	for batch := range slices.Chunk(wanted, maxFiltersPerSubscribe) {
		l.queueSubscriptionChange(outboxCommand{subscriptions: batch})
	}
}

func (l *brokerLink) unsubscribe(filters []string) {
	for batch := range slices.Chunk(slices.Clone(filters), maxFiltersPerSubscribe) {
		l.queueSubscriptionChange(outboxCommand{unsubscribeFilters: batch})
	}
}

func (l *brokerLink) queueSubscriptionChange(c outboxCommand) {
	if !l.outbox.queueSubscriptionChange(c) {
		l.abort(errors.New("too many queued subscription changes"))
	}
}

// abort closes the connection for the given reason, without DISCONNECT.
func (l *brokerLink) abort(reason error) {
	if conn := l.conn.Load(); conn != nil {
		conn.abort(reason)
	}
}

// recordEnd records that the link has ended. Paho calls it after a lost connection, when its workers have stopped.
func (l *brokerLink) recordEnd(err error) {
	l.endOnce.Do(func() {
		l.endErr = err
		close(l.ended)
	})
}

// flushAndDisconnect sends the commands that remain in the outbox, for at most flushTimeout, and then disconnects.
func (l *brokerLink) flushAndDisconnect(reason error) {
	l.outbox.closeForNewCommands()
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-l.flushed:
	case <-timer.C:
	case <-l.ended:
	}
	l.client.Disconnect(disconnectQuiesceMillis)
	l.recordEnd(reason)
}

// sendOutbox sends the commands of the outbox in order.
func (l *brokerLink) sendOutbox() {
	defer close(l.pendingAcks)
	for {
		c, ok := l.outbox.awaitNextCommand(l.ended)
		if !ok {
			return
		}
		p, err := l.sendCommand(c)
		if err != nil {
			l.abort(fmt.Errorf("cannot send: %w", err))
			return
		}
		if p.token == nil {
			continue
		}
		select {
		case l.pendingAcks <- p:
		case <-l.ended:
			l.reportAckOutcome(p)
			return
		}
	}
}

// sendCommand sends a command and returns the packet that the broker has to acknowledge. It may block until the write
// timeout.
func (l *brokerLink) sendCommand(c outboxCommand) (pendingAck, error) {
	var p pendingAck
	switch {
	case c.message != nil:
		return l.publish(c.message)
	case c.subscriptions != nil:
		filters := make(map[string]byte, len(c.subscriptions))
		for _, s := range c.subscriptions {
			filters[s.filter] = byte(s.qos)
		}
		p.token, p.subscriptions = l.client.SubscribeMultiple(filters, nil), c.subscriptions
	default:
		p.token = l.client.Unsubscribe(c.unsubscribeFilters...)
	}
	return p, l.awaitPacketWritten(p.token)
}

// publish sends a message. For QoS 1 it returns the packet that the broker has to acknowledge.
func (l *brokerLink) publish(m *Message) (pendingAck, error) {
	p := pendingAck{publishedMessage: m, sendNumber: l.unconfirmedSends.recordSend(m)}
	if m.QoS == AtMostOnce {
		err := l.conn.Load().publishQoS0(m)
		l.reportOutgoingMessage(m, err == nil)
		return pendingAck{}, err
	}
	p.token = l.client.Publish(m.Topic, byte(m.QoS), m.Retained, m.Payload)
	if err := l.awaitPacketWritten(p.token); err != nil {
		l.reportOutgoingMessage(m, false)
		return pendingAck{}, err
	}
	return p, nil
}

// awaitPacketWritten waits until paho has written a packet, so that messages which the link writes itself do not
// overtake the packet.
func (l *brokerLink) awaitPacketWritten(token paho.Token) error {
	if err := token.Error(); err != nil {
		return err
	}
	select {
	case <-l.conn.Load().commandWritten:
	case <-l.ended:
	}
	return nil
}

// reportOutgoingMessage calls Options.ObserveMessage for a message that was sent or dropped.
func (l *brokerLink) reportOutgoingMessage(m *Message, sent bool) {
	l.options.ObserveMessage(ObservedMessage{Topic: m.Topic, PayloadBytes: len(m.Payload), IsDropped: !sent})
}

// tokenSucceeded reports whether a token has completed without an error. It does not block.
func tokenSucceeded(token paho.Token) bool {
	select {
	case <-token.Done():
		return token.Error() == nil
	default:
		return false
	}
}

// reportAckOutcome handles an acknowledgement from the broker, or a missing acknowledgement after the connection was
// lost.
func (l *brokerLink) reportAckOutcome(p pendingAck) {
	if p.publishedMessage == nil {
		// In all other cases, the link is lost or the packet is an UNSUBSCRIBE.
		if token, ok := p.token.(*paho.SubscribeToken); ok && tokenSucceeded(token) {
			l.onSuback(l, p.subscriptions, token.Result())
		}
		return
	}
	if tokenSucceeded(p.token) {
		l.unconfirmedSends.confirmSend(p.sendNumber)
	}
	l.reportOutgoingMessage(p.publishedMessage, tokenSucceeded(p.token))
}

// awaitAcks waits for acknowledgements, oldest first. If an acknowledgement is overdue by a keepalive interval, it
// aborts the link. While an oversized message arrives, the timer restarts, because the message delays acknowledgements.
func (l *brokerLink) awaitAcks() {
	defer close(l.flushed)
	timer := time.NewTimer(l.options.KeepAlive)
	defer timer.Stop()
	for p := range l.pendingAcks {
		conn := l.conn.Load()
		for waiting := true; waiting; {
			progress := conn.discardProgress.Load()
			timer.Reset(l.options.KeepAlive)
			waiting = false
			select {
			case <-p.token.Done():
			case <-timer.C:
				if waiting = conn.discardProgress.Load() != progress; !waiting {
					l.abort(fmt.Errorf("no acknowledgement from the broker for %v", l.options.KeepAlive))
				}
			case <-l.ended:
			}
		}
		l.reportAckOutcome(p)
	}
}

// queueReceivedMessage puts a received message into the mailbox. It never blocks, because the same goroutine also reads
// PINGRESP packets.
func (l *brokerLink) queueReceivedMessage(m Message) {
	kept := l.mailbox.Put(MessageReceived{m})
	l.options.ObserveMessage(ObservedMessage{IsIncoming: true, Topic: m.Topic, PayloadBytes: len(m.Payload),
		IsDropped: !kept})
}
