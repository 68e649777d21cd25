package mqtt

import (
	"slices"
	"sync"
)

// Mailbox is the bounded queue between a connection and its owner. Put never
// blocks, so a slow owner stalls nobody. A message that does not fit is
// dropped, the newest first; other events are never dropped, but what an owner
// missed is told in brief: of Up and Down that wait in a row only the last state
// is kept, and of a filter only the last word, none once the link is down. So the
// queue stays bounded while nobody reads.
type Mailbox struct {
	maxMessages, maxBytes int // the bounds
	events                chan Event
	closed, done          chan struct{}
	wake                  chan struct{}

	mu           sync.Mutex
	queue        []Event // not yet offered to the owner
	heldMessages int     // messages, the one on offer too
	heldBytes    int
	isClosed     bool
}

// NewMailbox returns a mailbox for this many messages and bytes (payload, topic
// and a little for each). It must be closed.
func NewMailbox(messages, bytes int) *Mailbox {
	m := &Mailbox{
		maxMessages: messages, maxBytes: bytes,
		events: make(chan Event),
		closed: make(chan struct{}), done: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	go m.deliver()
	return m
}

// Events is the owner's end.
func (m *Mailbox) Events() <-chan Event { return m.events }

// Put queues an event and reports false if it was a message that was dropped.
func (m *Mailbox) Put(e Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed {
		return false
	}
	switch e := e.(type) {
	case MessageReceived:
		if m.heldMessages+1 > m.maxMessages || m.heldBytes+e.queuedBytes() > m.maxBytes {
			return false
		}
		m.heldMessages++
		m.heldBytes += e.queuedBytes()
	case SubscriptionRefused:
		m.dropFilterEvents(e.Filter)
	case SubscriptionRefusalEnded:
		m.dropFilterEvents(e.Filter)
	case LinkDown:
		m.dropFilterEventsWhere(func(string) bool { return true })
		m.dropLinkStatePairs(e)
	case LinkUp:
		m.dropLinkStatePairs(e)
	}
	m.queue = append(m.queue, e)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// dropLinkStatePairs drops Up, Down before another Up, and Down, Up before
// another Down, where nothing came in between.
func (m *Mailbox) dropLinkStatePairs(e Event) {
	n := len(m.queue)
	if n < 2 {
		return
	}
	if isLinkUp(m.queue[n-2]) == isLinkUp(e) && isLinkState(m.queue[n-2]) && isLinkState(m.queue[n-1]) {
		m.queue = m.queue[:n-2]
	}
}

// dropFilterEvents drops what waits about a filter.
func (m *Mailbox) dropFilterEvents(filter string) {
	m.dropFilterEventsWhere(func(of string) bool { return of == filter })
}

// dropFilterEventsWhere drops what waits about filters.
func (m *Mailbox) dropFilterEventsWhere(these func(filter string) bool) {
	m.queue = slices.DeleteFunc(m.queue, func(e Event) bool {
		switch e := e.(type) {
		case SubscriptionRefused:
			return these(e.Filter)
		case SubscriptionRefusalEnded:
			return these(e.Filter)
		}
		return false
	})
}

func isLinkUp(e Event) bool { _, up := e.(LinkUp); return up }

func isLinkState(e Event) bool { _, down := e.(LinkDown); return down || isLinkUp(e) }

// Close closes Events; what still waits is forgotten.
func (m *Mailbox) Close() {
	m.mu.Lock()
	if !m.isClosed {
		m.isClosed = true
		m.queue = nil
		close(m.closed)
	}
	m.mu.Unlock()
	<-m.done
}

func (m *Mailbox) deliver() {
	defer close(m.done)
	defer close(m.events)
	for {
		e, ok := m.next()
		if !ok {
			select {
			case <-m.wake:
				continue
			case <-m.closed:
				return
			}
		}
		select {
		case m.events <- e:
			m.releaseHeldBytes(e)
		case <-m.closed:
			return
		}
	}
}

func (m *Mailbox) next() (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return nil, false
	}
	e := m.queue[0]
	m.queue[0] = nil // so that its payload can be collected
	m.queue = m.queue[1:]
	return e, true
}

func (m *Mailbox) releaseHeldBytes(e Event) {
	received, ok := e.(MessageReceived)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldMessages--
	m.heldBytes -= received.queuedBytes()
}
