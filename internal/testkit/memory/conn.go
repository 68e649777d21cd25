package memory

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Conn is the connection of one client to a Broker. Conn implements mqtt.Conn.
type Conn struct {
	broker  *Broker
	id      string
	will    *mqtt.Message
	mailbox *mqtt.EventMailbox

	// The broker's lock protects the following fields.
	filters          map[string]mqtt.QoS
	order            []string // subscription filters in the order in which they were added
	refused          map[string]*refusal
	rand             *rand.Rand
	up               bool
	closed           bool
	cutCount         uint64 // number of lost links; a message sent before the last loss is not delivered
	messagesInFlight int    // number of messages sent but not yet delivered on the current link
	lastDue          time.Time

	nextWill       func() mqtt.Message  // returns the will for the next link; nil disables automatic reconnects
	reconnectDelay func() time.Duration // returns the delay before the next automatic reconnect
}

var _ mqtt.Conn = (*Conn)(nil)

// refusal records that the broker currently refuses a subscription filter.
type refusal struct {
	times      int // number of consecutive refusals of the filter on the current link
	retryTimer *time.Timer
}

// Publish implements mqtt.Conn. It never returns ErrBusy, because the in-memory broker accepts messages at once.
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

// requestFilter asks the broker to accept a subscription filter. If the broker refuses the filter, requestFilter
// schedules a retry.
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

// clearRefusal removes the refusal of a filter and reports that the refusal has ended. clearRefusal does nothing if the
// filter is not refused.
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

// DisconnectFor implements mqtt.Conn. Undelivered messages are lost, as after a lost connection.
func (c *Conn) DisconnectFor(d time.Duration) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.up {
		c.goDown(mqtt.ErrPlannedDisconnect)
		time.AfterFunc(d, c.comeBack)
	}
}

// goDown marks the link as down and reports LinkDown with the given reason.
func (c *Conn) goDown(reason error) {
	c.up = false
	c.forgetRefusals()
	c.cutCount++
	// Undelivered messages are lost. The delay of these messages must not delay messages on the next link.
	c.messagesInFlight, c.lastDue = 0, time.Time{}
	c.mailbox.Put(mqtt.LinkDown{Err: reason})
}

func (c *Conn) forgetRefusals() {
	for _, r := range c.refused {
		r.retryTimer.Stop()
	}
	clear(c.refused)
}

// comeBack establishes a new link unless the connection is closed or already up.
func (c *Conn) comeBack() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if !c.closed {
		c.broker.bringUp(c)
	}
}

// Events implements mqtt.Conn.
func (c *Conn) Events() <-chan mqtt.Event { return c.mailbox.Events() }

// Close implements mqtt.Conn. The broker does not publish the client's will.
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

// matchingQoS returns the highest QoS of all subscribed filters that match the topic. The client receives the message
// only once, even if several filters match.
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
