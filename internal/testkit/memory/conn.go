package memory

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Conn is one client of a Broker.
type Conn struct {
	broker  *Broker
	id      string
	will    *mqtt.Message
	mailbox *mqtt.EventMailbox

	// The fields below belong to the broker's lock.
	filters          map[string]mqtt.QoS
	order            []string // of filters
	refused          map[string]*refusal
	rand             *rand.Rand
	up               bool
	closed           bool
	cutCount         uint64 // counts cuts: what was sent before one is lost
	messagesInFlight int    // messages, since the last cut
	lastDue          time.Time

	nextWill       func() mqtt.Message  // the will of the next link, if the connection comes back by itself
	reconnectDelay func() time.Duration // how long that takes
}

var _ mqtt.Conn = (*Conn)(nil)

// refusal is a filter that the broker refuses now.
type refusal struct {
	times      int // in a row, by this link
	retryTimer *time.Timer
}

// Publish implements mqtt.Conn. It never returns ErrBusy.
func (c *Conn) Publish(m mqtt.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	switch {
	case c.closed:
		return mqtt.ErrClosed
	case !c.up:
		return mqtt.ErrDown
	}
	c.broker.publish(m)
	return nil
}

// Subscribe implements mqtt.Conn.
func (c *Conn) Subscribe(qos mqtt.QoS, filters ...string) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	for _, filter := range filters {
		if mqtt.CheckSubscriptionFilter(qos, filter) != nil {
			c.mailbox.Put(mqtt.SubscriptionRefused{Filter: filter, SubackCode: mqtt.SubackFailure})
			continue
		}
		if _, ok := c.filters[filter]; !ok {
			c.order = append(c.order, filter)
		}
		c.filters[filter] = qos
		if c.up {
			c.requestFilter(filter)
		}
	}
}

// requestFilter subscribes to a filter, which the broker grants or refuses.
func (c *Conn) requestFilter(filter string) {
	before := c.refused[filter]
	if refuse := c.broker.options.Refuse; refuse == nil || !refuse(c.id, filter) {
		c.clearRefusal(filter)
		c.broker.replay(c, filter)
		return
	}
	now := &refusal{times: 1}
	if before != nil {
		before.retryTimer.Stop()
		now.times += before.times
	}
	c.refused[filter] = now
	c.mailbox.Put(mqtt.SubscriptionRefused{Filter: filter, SubackCode: mqtt.SubackFailure})
	now.retryTimer = time.AfterFunc(mqtt.RefusedFilterRetryDelay(now.times, c.rand), func() {
		c.broker.mu.Lock()
		defer c.broker.mu.Unlock()
		if c.refused[filter] == now {
			c.requestFilter(filter)
		}
	})
}

// clearRefusal ends the refusal of a filter, if it is refused.
func (c *Conn) clearRefusal(filter string) {
	if r := c.refused[filter]; r != nil {
		r.retryTimer.Stop()
		delete(c.refused, filter)
		c.mailbox.Put(mqtt.SubscriptionRefusalEnded{Filter: filter})
	}
}

// Unsubscribe implements mqtt.Conn.
func (c *Conn) Unsubscribe(filters ...string) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	for _, filter := range filters {
		c.clearRefusal(filter)
		delete(c.filters, filter)
	}
	c.order = slices.DeleteFunc(c.order, func(filter string) bool { return slices.Contains(filters, filter) })
}

// DisconnectFor implements mqtt.Conn. It loses what is under way, as a cut does.
func (c *Conn) DisconnectFor(d time.Duration) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.up {
		c.goDown(mqtt.ErrPlannedDisconnect)
		time.AfterFunc(d, c.comeBack)
	}
}

// goDown ends the link.
func (c *Conn) goDown(reason error) {
	c.up = false
	c.forgetRefusals()
	c.cutCount++
	c.messagesInFlight, c.lastDue = 0, time.Time{} // what was under way is lost, and nothing waits for it
	c.mailbox.Put(mqtt.LinkDown{Err: reason})
}

func (c *Conn) forgetRefusals() {
	for _, r := range c.refused {
		r.retryTimer.Stop()
	}
	clear(c.refused)
}

// comeBack makes a new link, if there is none.
func (c *Conn) comeBack() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if !c.closed {
		c.broker.bringUp(c)
	}
}

// Events implements mqtt.Conn.
func (c *Conn) Events() <-chan mqtt.Event { return c.mailbox.Events() }

// Close implements mqtt.Conn. No will is published.
func (c *Conn) Close() error {
	c.broker.mu.Lock()
	c.up = false
	c.forgetRefusals()
	c.closed = true
	if c.broker.conns[c.id] == c {
		delete(c.broker.conns, c.id)
	}
	c.broker.mu.Unlock()
	c.mailbox.Close()
	return nil
}

// matchingQoS reports the highest QoS of the filters that a topic falls under: one
// message is delivered once, however many match.
func (c *Conn) matchingQoS(topic string) (qos mqtt.QoS, ok bool) {
	if !c.up {
		return 0, false
	}
	for filter, granted := range c.filters {
		if c.refused[filter] == nil && mqtt.FilterMatchesTopic(filter, topic) {
			qos, ok = max(qos, granted), true
		}
	}
	return qos, ok
}
