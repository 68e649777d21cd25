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

// Reasons in a Down event.
var (
	ErrCut       = errors.New("memory: the connection was cut")
	ErrTakenOver = errors.New("memory: another connection took the client id")
)

// Options may be zero. The functions are called with the broker locked, once
// for each message and subscriber, in the order of client ids; they may not
// call the broker.
type Options struct {
	// Delay is how long a message is under way. A later message to the same
	// subscriber never overtakes it.
	Delay func(topic string) time.Duration
	// Drop says that a message is lost on its way to one subscriber.
	Drop func(topic string) bool
	// Refuse says that the broker does not let a client read a filter. It is asked
	// again when the connection is, as by a session over the network.
	Refuse func(clientID, filter string) bool
	// ServeStaleRetained says that a client which subscribes gets what was retained before the newest message of a
	// topic, as at a node of a cluster that is behind.
	ServeStaleRetained func(clientID, topic string) bool
	// MailboxMessages and MailboxBytes bound what waits for the owner of each
	// connection, 1024 and 8 MiB unless set.
	MailboxMessages, MailboxBytes int
}

// Broker connects the Conns of one test.
type Broker struct {
	options Options
	wake    chan struct{}

	mu               sync.Mutex
	conns            map[string]*Conn // the newest with each client id
	retained         map[string]mqtt.Message
	previousRetained map[string]mqtt.Message // what it replaced
	delayed          schedule
	running          bool // a goroutine works through delayed
}

// New returns a broker with nobody connected.
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

// Connect returns a connection that is up. An older one with the same client
// id goes down for good. The will, if any, is published whenever the
// connection is lost, not when it is closed.
func (b *Broker) Connect(clientID string, will *mqtt.Message) *Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.newConn(clientID)
	c.will = will
	b.bringUp(c)
	return c
}

// Session returns a connection that is up, and that comes back by itself when
// it was lost, after the time that back returns, as a session over the network
// does: with a new will, and taking the client id from its present holder.
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

// bringUp gives a connection a link, and takes it from whoever has its client
// id. Nothing happens if it is up.
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

// Disconnect cuts the connection of a client: it gets Down, what is under way
// to it is lost, and its will is published. Nothing happens if it is not up.
func (b *Broker) Disconnect(clientID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.conns[clientID]; c != nil {
		b.cut(c, ErrCut)
	}
}

// Reconnect brings a client back that was cut: it gets Up, and retained
// messages again. Nothing happens if it is up or closed.
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

// publish delivers to whoever is subscribed, in the order of client ids.
func (b *Broker) publish(m mqtt.Message) {
	if m.Retained && len(m.Payload) == 0 {
		delete(b.retained, m.Topic)
	} else if m.Retained {
		b.previousRetained[m.Topic], b.retained[m.Topic] = b.retained[m.Topic], m
	}
	m.Retained = false // true only for those who subscribe later (MQTT 3.1.1, 3.3.1.3)
	for _, id := range slices.Sorted(maps.Keys(b.conns)) {
		c := b.conns[id]
		if qos, ok := c.matchingQoS(m.Topic); ok {
			b.deliver(c, m, qos)
		}
	}
}

// replay delivers what is retained under a filter, in the order of topics.
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

// deliver gives each subscriber a copy, as a network would.
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
