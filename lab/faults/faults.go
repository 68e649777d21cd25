// Package faults simulates an unreliable network on an MQTT connection. It loses, duplicates, delays and reorders
// incoming messages. A benchmark and tests use it.
package faults

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Options configures the simulated faults of incoming messages. Faults of different messages are independent.
type Options struct {
	Loss       float64       // probability that a copy of a message is lost
	Duplicates float64       // probability that a message is duplicated
	Delay      time.Duration // maximum delay of a copy; delays are random, so messages can overtake each other
	Rand       *rand.Rand
	// IsExemptTopic reports whether messages on a topic are delivered without faults. Nil means that no topic is
	// exempt.
	IsExemptTopic func(topic string) bool
}

// Conn is an MQTT connection with simulated faults of incoming messages.
type Conn struct {
	mqtt.Conn
	options Options
	mailbox *mqtt.EventMailbox
	ended   chan struct{}

	mu  sync.Mutex
	cut bool
}

// Wrap returns a connection that adds faults to inner. After the call, only the returned connection may receive from
// inner.Events().
func Wrap(inner mqtt.Conn, o Options) *Conn {
	c := &Conn{Conn: inner, options: o, mailbox: mqtt.NewEventMailbox(1024, 8<<20), ended: make(chan struct{})}
	go c.deliver()
	return c
}

// Events implements mqtt.Conn. Events returns the events after the simulated faults.
func (c *Conn) Events() <-chan mqtt.Event { return c.mailbox.Events() }

// Publish implements mqtt.Conn. After Cut it discards the message without an error.
func (c *Conn) Publish(m mqtt.Message) error {
	if c.isCut() {
		return nil
	}
	return c.Conn.Publish(m)
}

// Close implements mqtt.Conn. Close also closes the inner connection.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	<-c.ended
	c.mailbox.Close()
	return err
}

// Cut discards all further messages in both directions, as if the device had failed without disconnecting.
func (c *Conn) Cut() {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
}

func (c *Conn) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// deliver forwards the events of the inner connection, with faults, until the inner connection is closed.
func (c *Conn) deliver() {
	defer close(c.ended)
	for e := range c.Conn.Events() {
		r, ok := e.(mqtt.MessageReceived)
		if !ok || c.options.IsExemptTopic != nil && c.options.IsExemptTopic(r.Topic) {
			c.enqueueEvent(e)
			continue
		}
		for range 1 + c.bernoulli(c.options.Duplicates) {
			if c.bernoulli(c.options.Loss) == 0 {
				c.deliverDelayed(r)
			}
		}
	}
}

func (c *Conn) bernoulli(p float64) int {
	if p > 0 && c.options.Rand.Float64() < p {
		return 1
	}
	return 0
}

// deliverDelayed delivers one copy of a message after a random delay.
func (c *Conn) deliverDelayed(r mqtt.MessageReceived) {
	r.Payload = slices.Clone(r.Payload)
	if c.options.Delay == 0 {
		c.enqueueEvent(r)
		return
	}
	time.AfterFunc(time.Duration(c.options.Rand.Int64N(int64(c.options.Delay)+1)), func() { c.enqueueEvent(r) })
}

// enqueueEvent queues an event for the owner of the connection. The event is lost if the queue is full or the
// connection is closed.
func (c *Conn) enqueueEvent(e mqtt.Event) {
	if !c.isCut() {
		c.mailbox.Put(e)
	}
}
