package mqtt

import (
	"errors"
	"time"
)

// QoS is the MQTT quality of service. QoS 2 is not supported, because it delivered duplicates in tests and needs two
// more packets per message.
type QoS byte

// The supported qualities of service.
const (
	AtMostOnce  QoS = 0
	AtLeastOnce QoS = 1
)

// SubackFailure is the SUBACK code of a refused filter (MQTT 3.1.1, 3.9.3).
const SubackFailure = 0x80

// Errors that Publish returns if it does not accept a message.
var (
	ErrDown       = errors.New("mqtt: not connected to the broker")
	ErrOutboxFull = errors.New("mqtt: outbox is full")
	ErrClosed     = errors.New("mqtt: session is closed")
)

// ErrPlannedDisconnect is the error in the LinkDown event that follows DisconnectFor.
var ErrPlannedDisconnect = errors.New("mqtt: planned disconnect")

// Message is one application message. In an outgoing message, Retained asks the broker to keep the message for later
// subscribers; an empty payload deletes the retained message. In an incoming message, Retained reports that the broker
// had kept the message.
type Message struct {
	Topic    string
	Payload  []byte
	QoS      QoS
	Retained bool
}

// queuedBytes returns the size of the message for the byte limit of a queue.
func (m Message) queuedBytes() int { return len(m.Topic) + len(m.Payload) + messageOverhead }

// packetSize returns the length in bytes of m as a PUBLISH packet.
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

// messageOverhead is the number of bytes added to the size of each queued message, so that the byte limit of a queue
// also limits the number of empty messages.
const messageOverhead = 64

// Event is an event of a connection: [MessageReceived], [LinkUp], [LinkDown], [SubscriptionRefused] or
// [SubscriptionRefusalEnded].
type Event interface{ isEvent() }

type (
	// MessageReceived is a message from the broker. The receiver owns the payload.
	MessageReceived struct{ Message }
	// LinkUp reports that the link is open. The session sends the subscriptions again before any other message. A
	// broker keeps no other state of the client, so the owner of the connection must send its hello again.
	LinkUp struct{}
	// LinkDown reports that the link is lost, and the reason. Messages queued in either direction may be lost with it.
	LinkDown struct{ Err error }
	// SubscriptionRefused reports that the broker refused a filter, or that the filter is invalid. SubackCode is the
	// broker's code, 0x80 in MQTT 3.1.1. A valid filter is requested again after [RefusedFilterRetryDelay]. Each
	// refusal causes an event.
	SubscriptionRefused struct {
		Filter     string
		SubackCode byte
	}
	// SubscriptionRefusalEnded reports that the broker has granted a refused filter, or that the owner has unsubscribed
	// from it. LinkDown ends all refusals.
	SubscriptionRefusalEnded struct{ Filter string }
)

func (MessageReceived) isEvent()          {}
func (LinkUp) isEvent()                   {}
func (LinkDown) isEvent()                 {}
func (SubscriptionRefused) isEvent()      {}
func (SubscriptionRefusalEnded) isEvent() {}

// Conn is a host's connection to a broker. [Session] and memory.Conn implement it. All methods are safe for concurrent
// use.
type Conn interface {
	// Publish queues m for sending and never blocks. It takes ownership of the payload. A nil error means that m was
	// queued, not that it was received. No message is sent twice: if the link goes down, it is unknown whether messages
	// that were being sent have arrived.
	//
	// ErrDown: the link is not open. ErrOutboxFull: the outbox is full, retry later. ErrClosed: Close was called. Other
	// errors: m can never be sent.
	Publish(m Message) error
	// Subscribe requests filters now, if the link is up, and after every reconnect. A repeated request makes the broker
	// send its retained messages again. Filters should not overlap, because a broker may then deliver a message more
	// than once. A refused filter is requested again until it is granted, see SubscriptionRefused.
	Subscribe(qos QoS, filters ...string)
	// Unsubscribe removes filters. Messages in flight still arrive.
	Unsubscribe(filters ...string)
	// DisconnectFor disconnects from the broker as Close does, and reconnects after d. LinkDown and LinkUp events
	// report it. It has no effect if the link is down.
	DisconnectFor(d time.Duration)
	// Events returns the channel of the connection's mailbox, which is bounded in messages and bytes: see
	// [EventMailbox]. Close closes the channel.
	Events() <-chan Event
	// Close sends the rest of the outbox, for a bounded time, and then disconnects, so that the broker discards the
	// will. It may be called more than once.
	Close() error
}
