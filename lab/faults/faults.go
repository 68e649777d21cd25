// Package faults makes a good connection to a broker a bad one: messages that
// come in are lost, doubled, late and overtake each other, as a bench and
// tests want it of a local network that has no such faults of its own.
package faults

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Options say what befalls the messages that come in, each by itself.
type Options struct {
	Loss       float64       // probability that a copy is lost
	Duplicates float64       // probability that there are two copies
	Delay      time.Duration // most of a copy; each takes a time of its own, so they overtake each other
	Rand       *rand.Rand
	// IsExemptTopic, if set, tells which topics have no faults.
	IsExemptTopic func(topic string) bool
}

// Conn is a connection with faults.
type Conn struct {
	mqtt.Conn
	options Options
	mailbox *mqtt.EventMailbox
	ended   chan struct{}

	mu  sync.Mutex
	cut bool
}

// Wrap returns inner with faults. Inner's events are the new connection's.
func Wrap(inner mqtt.Conn, o Options) *Conn {
	c := &Conn{Conn: inner, options: o, mailbox: mqtt.NewEventMailbox(1024, 8<<20), ended: make(chan struct{})}
	go c.deliver()
	return c
}

// Events implements mqtt.Conn.
func (c *Conn) Events() <-chan mqtt.Event { return c.mailbox.Events() }

// Publish implements mqtt.Conn.
func (c *Conn) Publish(m mqtt.Message) error {
	if c.isCut() {
		return nil
	}
	return c.Conn.Publish(m)
}

// Close implements mqtt.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	<-c.ended
	c.mailbox.Close()
	return err
}

// Cut lets nothing pass any more, in either direction: the device is dead, and
// neither it nor the broker says so.
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

// deliver passes inner's events on until inner is closed.
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

// deliverDelayed passes a copy on after its time.
func (c *Conn) deliverDelayed(r mqtt.MessageReceived) {
	r.Payload = slices.Clone(r.Payload)
	if c.options.Delay == 0 {
		c.enqueueEvent(r)
		return
	}
	time.AfterFunc(time.Duration(c.options.Rand.Int64N(int64(c.options.Delay)+1)), func() { c.enqueueEvent(r) })
}

// enqueueEvent hands an event to the owner. An event that does not fit is lost, as with inner;
// what comes after Close is, too.
func (c *Conn) enqueueEvent(e mqtt.Event) {
	if !c.isCut() {
		c.mailbox.Put(e)
	}
}
