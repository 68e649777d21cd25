package mqtt_test

import (
	"sync"

	"github.com/fedmesh/fedmesh/mqtt"
)

// The indices of the counts in counter. Each count consists of messages and their payload bytes.
const (
	incoming = iota
	incomingDropped
	outgoing
	outgoingDropped
	kinds
)

// counter counts the messages passed to Options.ObserveMessage.
type counter struct {
	mu sync.Mutex
	n  [kinds]int
}

func newCounter() *counter { return new(counter) }

func (c *counter) observe(t mqtt.ObservedMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := outgoing
	if t.IsIncoming {
		kind = incoming
	}
	c.n[kind]++
	if t.IsDropped {
		c.n[kind+1]++
	}
}

func (c *counter) get(kind int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[kind]
}
