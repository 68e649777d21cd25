package memory

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Errors that a Conn reports in mqtt.LinkDown events.
var (
	ErrCut       = errors.New("memory: the connection was cut")
	ErrTakenOver = errors.New("memory: another connection took the client id")
)

// Options configures a Broker; the zero value is valid. The broker calls the functions while it holds its lock, so they
// must not call methods of the broker. Calls happen in the order of client ids.
type Options struct {
	// Delay returns the delivery delay of a message on the given topic. Messages to the same subscriber keep their
	// order, whatever their delays are.
	Delay func(topic string) time.Duration
	// Drop reports whether the broker loses a message on the given topic instead of delivering it to a subscriber.
	Drop func(topic string) bool
	// Refuse reports whether the broker refuses a client's subscription to a filter. The connection retries refused
	// filters, like mqtt.Session does.
	Refuse func(clientID, filter string) bool
	// ServeStaleRetained reports whether a new subscriber receives the previous retained message of a topic instead of
	// the newest. ServeStaleRetained simulates a cluster node with outdated data.
	ServeStaleRetained func(clientID, topic string) bool
	// MailboxMessages and MailboxBytes limit the queue of undelivered events of each connection. Zero means the
	// default: 1024 messages and 8 MiB.
	MailboxMessages, MailboxBytes int
}

// Broker is an in-memory MQTT broker. All clients of a test connect to the same Broker.
type Broker struct {
	options Options
	wake    chan struct{}

	mu               sync.Mutex
	conns            map[string]*Conn // newest connection by client id
	retained         map[string]mqtt.Message
	previousRetained map[string]mqtt.Message // previous retained message by topic, for ServeStaleRetained
	delayed          schedule
	running          bool // true while a goroutine delivers delayed messages
}

// New returns a broker without clients and without retained messages.
func New(options Options) *Broker {
	if options.MailboxMessages == 0 {
		options.MailboxMessages = 1024
	}
	if options.MailboxBytes == 0 {
		options.MailboxBytes = 8 << 20
	}
	return &Broker{
		options:          options,
		wake:             make(chan struct{}, 1),
		conns:            make(map[string]*Conn),
		retained:         make(map[string]mqtt.Message),
		previousRetained: make(map[string]mqtt.Message),
	}
}

// Connect connects a client and returns the open connection. It permanently closes an older connection with the same
// client id. The broker publishes the will if the connection is lost, but not after Close.
func (b *Broker) Connect(clientID string, will *mqtt.Message) *Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.newConn(clientID)
	c.will = will
	b.bringUp(c)
	return c
}

// Session connects a client whose connection reconnects automatically. back returns the delay before each reconnect,
// and will returns the will for the new link. Reconnecting disconnects any other connection with the same client id.
func (b *Broker) Session(clientID string, will func() mqtt.Message, back func() time.Duration) *Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.newConn(clientID)
	c.nextWill, c.reconnectDelay = will, back
	b.bringUp(c)
	return c
}

func (b *Broker) newConn(clientID string) *Conn {
	return &Conn{
		broker:  b,
		id:      clientID,
		mailbox: mqtt.NewEventMailbox(b.options.MailboxMessages, b.options.MailboxBytes),
		filters: make(map[string]mqtt.QoS),
		refused: make(map[string]*refusal),
		rand:    rand.New(rand.NewPCG(uint64(len(clientID)), 0)),
	}
}

// bringUp establishes the link of connection c and disconnects any other connection with the same client id. bringUp
// does nothing if the link is already up.
func (b *Broker) bringUp(c *Conn) {
	if c.up {
		return
	}
	if old := b.conns[c.id]; old != nil && old != c {
		b.cut(old, ErrTakenOver)
	}
	if c.nextWill != nil {
		will := c.nextWill()
		c.will = &will
	}
	b.conns[c.id] = c
	c.up = true
	c.mailbox.Put(mqtt.LinkUp{})
	for _, filter := range c.order {
		c.requestFilter(filter)
	}
}

// Disconnect simulates a lost connection of a client: the client receives LinkDown, undelivered messages are lost, and
// the broker publishes the will. Disconnect does nothing if the client is not connected.
func (b *Broker) Disconnect(clientID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.conns[clientID]; c != nil {
		b.cut(c, ErrCut)
	}
}

// Reconnect restores a link that was lost. The client receives LinkUp and then the retained messages that match its
// subscriptions. It does nothing if the link is up or closed.
func (b *Broker) Reconnect(clientID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.conns[clientID]; c != nil {
		b.bringUp(c)
	}
}

func (b *Broker) cut(c *Conn, reason error) {
	if !c.up {
		return
	}
	c.goDown(reason)
	if c.reconnectDelay != nil {
		time.AfterFunc(c.reconnectDelay(), c.comeBack)
	}
	if c.will != nil {
		b.publish(*c.will)
	}
}

// publish delivers a message to all subscribers of its topic, in the order of client ids.
func (b *Broker) publish(m mqtt.Message) {
	if m.Retained && len(m.Payload) == 0 {
		delete(b.retained, m.Topic)
	} else if m.Retained {
		b.previousRetained[m.Topic], b.retained[m.Topic] = b.retained[m.Topic], m
	}
	// Subscribers that exist already receive the message without the retain flag (MQTT 3.1.1, section 3.3.1.3).
	m.Retained = false
	for _, id := range slices.Sorted(maps.Keys(b.conns)) {
		c := b.conns[id]
		if qos, ok := c.matchingQoS(m.Topic); ok {
			b.deliver(c, m, qos)
		}
	}
}

// replay sends the retained messages that match filter to connection c, sorted by topic.
func (b *Broker) replay(c *Conn, filter string) {
	for _, topic := range slices.Sorted(maps.Keys(b.retained)) {
		if !mqtt.FilterMatchesTopic(filter, topic) {
			continue
		}
		m := b.retained[topic]
		if old, ok := b.previousRetained[topic]; ok && b.options.ServeStaleRetained != nil &&
			b.options.ServeStaleRetained(c.id, topic) {
			m = old
		}
		b.deliver(c, m, c.filters[filter])
	}
}

// deliver sends a copy of the message to one subscriber, because clients on a real network do not share memory.
func (b *Broker) deliver(c *Conn, m mqtt.Message, granted mqtt.QoS) {
	if b.options.Drop != nil && b.options.Drop(m.Topic) {
		return
	}
	m.QoS = min(m.QoS, granted)
	m.Payload = bytes.Clone(m.Payload)
	var delay time.Duration
	if b.options.Delay != nil {
		delay = b.options.Delay(m.Topic)
	}
	if delay <= 0 && c.messagesInFlight == 0 {
		c.mailbox.Put(mqtt.MessageReceived{Message: m})
		return
	}
	b.scheduleDelivery(c, m, delay)
}
