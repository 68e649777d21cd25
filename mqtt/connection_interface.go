package mqtt

import (
	"errors"
	"time"
)

// QoS is the quality of service on one hop. QoS 2 is not used: it was measured delivering twice, and costs two more
// packets.
type QoS byte

// The qualities of service in use.
const (
	AtMostOnce  QoS = 0
	AtLeastOnce QoS = 1
)

// SubackFailure is the SUBACK code of a refused filter (MQTT 3.1.1, 3.9.3).
const SubackFailure = 0x80

// Reasons why Publish did not take a message.
var (
	ErrDown       = errors.New("mqtt: not connected to the broker")
	ErrOutboxFull = errors.New("mqtt: too many messages wait to be sent")
	ErrClosed     = errors.New("mqtt: closed")
)

// ErrPlannedDisconnect is in the LinkDown that follows DisconnectFor.
var ErrPlannedDisconnect = errors.New("mqtt: paused")

// Message is one application message. Retained means, on the way out, that
// the broker should keep it for later subscribers (an empty payload deletes
// what it keeps) and, on the way in, that it was kept.
type Message struct {
	Topic    string
	Payload  []byte
	QoS      QoS
	Retained bool
}

// queuedBytes is what a message counts for in a queue bounded in bytes.
func (m Message) queuedBytes() int { return len(m.Topic) + len(m.Payload) + messageOverhead }

// packetSize is the length of m as a PUBLISH.
func (m Message) packetSize() int {
	body := 2 + len(m.Topic) + len(m.Payload)
	if m.QoS > AtMostOnce {
		body += 2
	}
	size := 1 + body
	for rest := body; ; rest >>= 7 {
		size++
		if rest < 128 {
			return size
		}
	}
}

// messageOverhead, in bytes, is counted for each queued message, so that
// many empty ones are bounded too.
const messageOverhead = 64

// Event is what a connection tells its owner: [MessageReceived], [LinkUp], [LinkDown],
// [SubscriptionRefused] or [SubscriptionRefusalEnded].
type Event interface{ isEvent() }

type (
	// MessageReceived is a message from the broker. The payload is the receiver's.
	MessageReceived struct{ Message }
	// LinkUp says that the link is open. The subscriptions have been asked for
	// again, ahead of whatever is published from now on; a broker keeps
	// nothing else of us, so the owner says hello again.
	LinkUp struct{}
	// LinkDown says that the link is lost and why. Messages still queued in
	// either direction may be lost with it.
	LinkDown struct{ Err error }
	// SubscriptionRefused says that the broker will not let us read a filter, or
	// that it is no valid filter. SubackCode is the broker's, 0x80 in MQTT 3.1.1. The
	// broker is asked for a valid one again, see [RefusedFilterRetryDelay]; each refusal is told.
	SubscriptionRefused struct {
		Filter     string
		SubackCode byte
	}
	// SubscriptionRefusalEnded says that a filter that was refused is granted by now, or was
	// given up by its owner. Down ends all refusals.
	SubscriptionRefusalEnded struct{ Filter string }
)

func (MessageReceived) isEvent()          {}
func (LinkUp) isEvent()                   {}
func (LinkDown) isEvent()                 {}
func (SubscriptionRefused) isEvent()      {}
func (SubscriptionRefusalEnded) isEvent() {}

// Conn is a broker as a host sees it. [Session] and memory.Conn implement it.
// All methods may be called at any time, by several goroutines.
type Conn interface {
	// Publish hands m to the network and never blocks. It takes ownership of
	// the payload. A nil error means that m was queued for the broker, not
	// that anyone received it. No message is ever sent twice: of those under way
	// when the link goes down nobody knows whether they arrived. ErrDown: the link is not open; ErrOutboxFull: the
	// outbox is full, try later; ErrClosed: after Close; other errors: m can
	// never be sent.
	Publish(m Message) error
	// Subscribe asks for filters now, if the link is up, and again after every
	// reconnect. Asking again for a filter makes the broker send its retained
	// messages again. Filters should not overlap: how often a message then comes
	// is the broker's choice. A filter that is refused is asked for again until the
	// broker grants it, see SubscriptionRefused.
	Subscribe(qos QoS, filters ...string)
	// Unsubscribe gives filters up. Messages already under way still arrive.
	Unsubscribe(filters ...string)
	// DisconnectFor says goodbye to the broker as Close does, and connects again after
	// so long. Down and Up tell of it. Nothing happens if the link is down.
	DisconnectFor(d time.Duration)
	// Events is the one mailbox of the connection, bounded in messages and
	// bytes: see [EventMailbox]. It is closed by Close.
	Events() <-chan Event
	// Close sends what waits to be sent, for a bounded time, then says goodbye
	// to the broker, which so drops the will. It may be called again.
	Close() error
}
