package world

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// Errors in LinkDown events that name the reason for the loss of a connection.
var (
	errCut       = errors.New("world: connection lost")
	errTakenOver = errors.New("world: client id taken over by another connection")
	errBroker    = errors.New("world: broker stopped")
)

const (
	// keepAlive is the time after which the broker or a client considers a silent peer lost.
	keepAlive = 45 * time.Second
	// mailboxMessages is the maximum number of messages queued for a process.
	mailboxMessages = 1024
)

// deliveryFaults describes the faults of message delivery. With the zero value, each message is delivered once, in
// order.
type deliveryFaults struct {
	loss, double float64       // probabilities that a message is lost (loss) or delivered twice (double)
	late         time.Duration // maximum delay; 0 means a few milliseconds
	reorder      bool          // true if messages of different topics may overtake each other
}

// broker simulates an MQTT broker that retains and delivers messages. Messages are delayed both on the way to the
// broker and on the way from the broker.
type broker struct {
	w             *World
	up            bool
	retained      map[string]mqtt.Message
	savedRetained map[string]mqtt.Message // retained messages that survive a crash of the broker
	links         map[string]*link        // newest link of each client
	weather       deliveryFaults
}

// link is a connection of a client to the broker. link is not used again after it was lost.
type link struct {
	conn    *conn
	open    bool
	silent  bool // true if messages are lost without notice to either end
	filters map[string]mqtt.QoS
	order   []string // topic filters in the order of subscription
	will    *mqtt.Message
	lastUp  time.Time // latest arrival time at the broker; keeps messages in order
	// latest delivery time by topic; keeps messages in order; the topic "" means all topics
	last map[string]time.Time
}

// newBroker returns a broker that periodically saves its retained messages.
func newBroker(w *World) *broker {
	b := &broker{w: w, up: true, retained: map[string]mqtt.Message{}, links: map[string]*link{}}
	var save func()
	save = func() {
		b.save()
		w.after(20*time.Second, save)
	}
	w.after(w.between(0, 20*time.Second), save)
	return b
}

// save stores the current retained messages, which then survive a crash.
func (b *broker) save() {
	if b.up {
		b.savedRetained = maps.Clone(b.retained)
	}
}

// crash ends all links. The broker loses the changes to retained messages since the last save.
func (b *broker) crash() {
	b.up = false
	b.retained = map[string]mqtt.Message{}
	maps.Copy(b.retained, b.savedRetained)
	for _, id := range slices.Sorted(maps.Keys(b.links)) {
		l := b.links[id]
		delete(b.links, id)
		b.w.after(b.delay(), func() { l.conn.lost(l, errBroker) })
	}
}

func (b *broker) delay() time.Duration {
	return time.Duration(b.w.rng.Int64N(int64(max(b.weather.late, 5*time.Millisecond))))
}

// drop ends a client's link and publishes its will.
func (b *broker) drop(id string, l *link) {
	if b.links[id] != l {
		return
	}
	delete(b.links, id)
	if l.will != nil {
		b.publish(*l.will)
	}
}

// upward calls do at the broker after a random delay. Calls of one link keep their order.
func (l *link) upward(do func()) {
	b := l.conn.w.broker
	at := b.w.jobTime().Add(b.delay())
	if at.Before(l.lastUp) {
		at = l.lastUp
	}
	l.lastUp = at
	b.w.agenda.add(at, func() {
		if b.up && l.open && !l.silent && b.links[l.conn.id] == l {
			do()
		}
	})
}

// publish delivers the message m to all subscribers. If the message is marked as retained, publish also retains it.
func (b *broker) publish(m mqtt.Message) {
	switch {
	case m.Retained && len(m.Payload) == 0:
		delete(b.retained, m.Topic)
	case m.Retained:
		b.retained[m.Topic] = m
	}
	m.Retained = false
	for _, id := range slices.Sorted(maps.Keys(b.links)) {
		l := b.links[id]
		for _, filter := range l.order {
			if mqtt.FilterMatchesTopic(filter, m.Topic) {
				l.downward(m, l.filters[filter])
				break
			}
		}
	}
}

// subscribe adds a filter and delivers the retained messages that match it.
func (l *link) subscribe(filter string, qos mqtt.QoS) {
	if _, ok := l.filters[filter]; !ok {
		l.order = append(l.order, filter)
	}
	l.filters[filter] = qos
	b := l.conn.w.broker
	for _, topic := range slices.Sorted(maps.Keys(b.retained)) {
		if mqtt.FilterMatchesTopic(filter, topic) {
			l.downward(b.retained[topic], qos)
		}
	}
}

func (l *link) unsubscribe(filter string) {
	delete(l.filters, filter)
	l.order = slices.DeleteFunc(l.order, func(f string) bool { return f == filter })
}

// downward sends a message from the broker to the client. Messages of one topic keep their order.
func (l *link) downward(m mqtt.Message, granted mqtt.QoS) {
	b := l.conn.w.broker
	m.QoS = min(m.QoS, granted)
	times := 1
	switch p := b.w.rng.Float64(); {
	case p < b.weather.loss:
		return
	case p < b.weather.loss+b.weather.double:
		times = 2
	}
	for range times {
		key := ""
		if b.weather.reorder {
			key = m.Topic
		}
		at := b.w.now.Add(b.delay())
		for _, before := range []time.Time{l.last[key], l.last[m.Topic]} {
			if at.Before(before) {
				at = before
			}
		}
		l.last[key], l.last[m.Topic] = at, at
		b.w.agenda.add(at, func() {
			if l.open && !l.silent {
				l.conn.received(m)
			}
		})
	}
}

// inbox holds the events that the connection of a process has received.
type inbox struct {
	events chan mqtt.Event
	waiter *waiter // goroutine that waits for this inbox
}

// conn is the connection of a process. It implements mqtt.Conn and reconnects automatically with a new link.
type conn struct {
	w      *World
	life   *processLife
	id     string
	will   func() mqtt.Message // function that returns the will message; nil means no will
	inbox  inbox
	link   *link // nil while disconnected
	want   map[string]mqtt.QoS
	order  []string
	closed bool
	paused bool
}

var _ mqtt.Conn = (*conn)(nil)

func (l *processLife) connect(id string, will func() mqtt.Message) *conn {
	// The channel has space for messages and, in addition, for other events.
	c := &conn{w: l.w, life: l, id: id, will: will, want: map[string]mqtt.QoS{},
		inbox: inbox{events: make(chan mqtt.Event, 2*mailboxMessages)}}
	l.p.inboxes[c.inbox.events] = &c.inbox
	l.p.conn = c
	c.reconnect()
	return c
}

// reconnect creates a new link after a random delay. While the broker is down, it tries again later.
func (c *conn) reconnect() {
	c.w.after(c.w.between(10*time.Millisecond, 3*time.Second), func() {
		b := c.w.broker
		switch {
		case c.closed || c.life.dead || c.link != nil || c.paused:
			return
		case !b.up || c.life.p.cutOff > 0:
			c.reconnect()
			return
		}
		l := &link{conn: c, open: true, filters: map[string]mqtt.QoS{}, last: map[string]time.Time{}}
		if c.will != nil {
			if m := c.will(); m.Topic != "" {
				will := slices.Clone(c.life.p.messagesWithLies(m))
				l.will = &will[len(will)-1]
			}
		}
		if old := b.links[c.id]; old != nil {
			old.open = false
			b.drop(c.id, old)
			if old.conn != c {
				c.w.after(b.delay(), func() { old.conn.lost(old, errTakenOver) })
			}
		}
		b.links[c.id], c.link = l, l
		c.put(mqtt.LinkUp{})
		for _, filter := range c.order {
			c.ask(filter)
		}
	})
}

func (c *conn) ask(filter string) {
	l, qos := c.link, c.want[filter]
	l.upward(func() { l.subscribe(filter, qos) })
}

// lost handles the loss of a link and schedules a reconnect.
func (c *conn) lost(l *link, why error) {
	l.open = false
	if c.link != l || c.closed || c.life.dead {
		return
	}
	c.link = nil
	c.put(mqtt.LinkDown{Err: why})
	c.reconnect()
}

// cut ends the current link, and both ends notice it immediately.
func (c *conn) cut(why error) {
	if l := c.link; l != nil {
		c.lost(l, why)
		c.w.broker.drop(c.id, l)
	}
}

// silence makes the current link lose all messages. Both ends detect the loss only after the keepalive time.
func (c *conn) silence() {
	l := c.link
	if l == nil {
		return
	}
	l.silent = true
	c.w.after(keepAlive, func() {
		c.lost(l, errCut)
		c.w.broker.drop(c.id, l)
	})
}

func (c *conn) put(e mqtt.Event) {
	c.inbox.events <- e // cannot block, because the method received limits the number of messages
	if w := c.inbox.waiter; w != nil && w.inbox == &c.inbox {
		c.w.wake(w.job)
	}
}

func (c *conn) received(m mqtt.Message) {
	if c.closed || c.life.dead || len(c.inbox.events) >= mailboxMessages {
		return
	}
	m.Payload = bytes.Clone(m.Payload)
	c.w.note("%s < %s %s", c.id, m.Topic, describePayload(m.Payload))
	c.put(mqtt.MessageReceived{Message: m})
	c.life.p.answerWithLie(m)
}

// Publish implements mqtt.Conn.
func (c *conn) Publish(m mqtt.Message) error {
	c.life.alive()
	if err := m.Validate(); err != nil {
		return err
	}
	switch {
	case c.closed:
		return mqtt.ErrClosed
	case c.link == nil:
		return mqtt.ErrDown
	case c.w.rng.IntN(200) == 0:
		return mqtt.ErrOutboxFull
	}
	m.Payload = bytes.Clone(m.Payload)
	b := c.w.broker
	if !c.life.p.observeSentMessage(m) || c.w.rng.Float64() < b.weather.loss {
		return nil
	}
	for _, m := range c.life.p.messagesWithLies(m) {
		c.link.upward(func() { b.publish(m) })
	}
	return nil
}

// Subscribe implements mqtt.Conn.
func (c *conn) Subscribe(qos mqtt.QoS, filters ...string) {
	c.life.alive()
	for _, filter := range filters {
		if _, ok := c.want[filter]; !ok {
			c.order = append(c.order, filter)
		}
		if c.want[filter] = qos; c.link != nil {
			c.ask(filter)
		}
	}
}

// Unsubscribe implements mqtt.Conn.
func (c *conn) Unsubscribe(filters ...string) {
	c.life.alive()
	for _, filter := range filters {
		delete(c.want, filter)
		c.order = slices.DeleteFunc(c.order, func(f string) bool { return f == filter })
		if l := c.link; l != nil {
			l.upward(func() { l.unsubscribe(filter) })
		}
	}
}

// DisconnectFor implements mqtt.Conn.
func (c *conn) DisconnectFor(d time.Duration) {
	c.life.alive()
	if c.link == nil {
		return
	}
	c.paused = true
	c.cut(mqtt.ErrPlannedDisconnect)
	c.w.after(d, func() {
		c.paused = false
		c.reconnect()
	})
}

// Events implements mqtt.Conn.
func (c *conn) Events() <-chan mqtt.Event { return c.inbox.events }

// Close implements mqtt.Conn. Messages that were published before are still sent. The broker does not publish the will.
func (c *conn) Close() error {
	c.life.alive()
	if c.closed {
		return nil
	}
	c.closed = true
	delete(c.life.p.inboxes, c.inbox.events)
	if l := c.link; l != nil {
		c.link = nil
		l.upward(func() {
			l.will = nil
			c.w.broker.drop(c.id, l)
		})
	}
	return nil
}
