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
	// maxUnacknowledgedPackets is how many packets may wait for the broker's acknowledgement.
	maxUnacknowledgedPackets = 8
	// flushTimeout bounds how long Close sends what waits to be sent.
	flushTimeout = 3 * time.Second
	// disconnectQuiesceMillis is how many milliseconds paho may take to send DISCONNECT, and to wait for the end.
	disconnectQuiesceMillis = 250 + uint(brokerCloseTimeout/time.Millisecond)
)

// brokerLink is one connection, from CONNECT to its end, with a paho client of its
// own. Paho's reconnecting is not used: it discards subscriptions, resends
// refused messages without end, has no jitter and cannot be interrupted.
type brokerLink struct {
	options  *Options
	client   paho.Client
	mailbox  *EventMailbox
	outbox   *outbox
	onSuback func(l *brokerLink, asked []subscription, codes map[string]byte) // after a SUBACK
	// is called for each oversized message
	onOversizedMessage func(ObservedMessage)

	unconfirmedSends unconfirmedSends

	conn    atomic.Pointer[linkConn] // nil until dialed
	dialErr error                    // why there is no conn; read after connecting

	pendingAcks chan pendingAck // the window
	flushed     chan struct{}   // closed when there is nothing more to send or acknowledge
	ended       chan struct{}   // closed when the link has ended
	endOnce     sync.Once
	endErr      error // why it ended; read after lost
}

// pendingAck is a packet that the broker has to acknowledge.
type pendingAck struct {
	token            paho.Token
	subscriptions    []subscription // of a SUBSCRIBE
	publishedMessage *Message       // of a PUBLISH
	sendNumber       int            // under way
}

// start begins to send the contents of the outbox. After a loss the sender may hang in paho until the write timeout, so
// nothing waits for it.
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
		l.abort(errors.New("too many changes of subscriptions wait to be sent"))
	}
}

// abort ends the link for a reason, without DISCONNECT.
func (l *brokerLink) abort(reason error) {
	if conn := l.conn.Load(); conn != nil {
		conn.abort(reason)
	}
}

// recordEnd records that the link has ended. After a loss paho calls it, once its workers have stopped.
func (l *brokerLink) recordEnd(err error) {
	l.endOnce.Do(func() {
		l.endErr = err
		close(l.ended)
	})
}

// flushAndDisconnect sends what waits in the outbox, for a bounded time, and disconnects for
// a reason.
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

// sendOutbox works through the outbox, in order.
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

// sendCommand sends a command and returns the packet that the broker has to acknowledge. It may block for the write
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

// publishQoS0 writes a message of QoS 0; for QoS 1 it returns the packet that the broker has to acknowledge.
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

// awaitPacketWritten waits until paho has written a packet: the messages that it does not write must not overtake it.
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

// reportOutgoingMessage reports that a message was sent or dropped.
func (l *brokerLink) reportOutgoingMessage(m *Message, sent bool) {
	l.options.ObserveMessage(ObservedMessage{Topic: m.Topic, PayloadBytes: len(m.Payload), IsDropped: !sent})
}

// tokenSucceeded reports whether a token is done without an error. It does not wait.
func tokenSucceeded(token paho.Token) bool {
	select {
	case <-token.Done():
		return token.Error() == nil
	default:
		return false
	}
}

// reportAckOutcome reports whether a packet was acknowledged, or never will be.
func (l *brokerLink) reportAckOutcome(p pendingAck) {
	if p.publishedMessage == nil {
		// else the link is lost, or it is an UNSUBSCRIBE
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

// awaitAcks waits for the acknowledgements, oldest first. If one is late by a whole keepalive, it keeps the window
// full, so the link is replaced. The time does not count while an oversized message arrives, which delays them.
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
					l.abort(fmt.Errorf("the broker acknowledged nothing for %v", l.options.KeepAlive))
				}
			case <-l.ended:
			}
		}
		l.reportAckOutcome(p)
	}
}

// queueReceivedMessage takes in a message, in the order of arrival. It only queues and never blocks: PINGRESP comes in
// the same way.
func (l *brokerLink) queueReceivedMessage(m Message) {
	kept := l.mailbox.Put(MessageReceived{m})
	l.options.ObserveMessage(ObservedMessage{IsIncoming: true, Topic: m.Topic, PayloadBytes: len(m.Payload),
		IsDropped: !kept})
}
