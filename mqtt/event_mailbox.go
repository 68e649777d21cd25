package mqtt

import (
	"slices"
	"sync"
)

// EventMailbox is the bounded queue between a connection and its owner. Put never
// blocks, so a slow owner stalls nobody. A message that does not fit is
// dropped, the newest first; other events are never dropped, but what an owner
// missed is told in brief: of Up and Down that wait in a row only the last state
// is kept, and of a filter only the last word, none once the link is down. So the
// queue stays bounded while nobody reads.
type EventMailbox struct {
	maxMessages, maxBytes int // the bounds
	events                chan Event
	closed, deliveryEnded chan struct{}
	deliveryWake          chan struct{}

	mu           sync.Mutex
	queuedEvents []Event // not yet offered to the owner
	heldMessages int     // messages, the one on offer too
	heldBytes    int
	isClosed     bool
}

// NewEventMailbox returns a mailbox for this many messages and bytes (payload, topic
// and a little for each). It must be closed.
func NewEventMailbox(messages, bytes int) *EventMailbox {
	m := &EventMailbox{
		maxMessages: messages, maxBytes: bytes,
		events: make(chan Event),
		closed: make(chan struct{}), deliveryEnded: make(chan struct{}),
		deliveryWake: make(chan struct{}, 1),
	}
	go m.deliverEvents()
	return m
}

// Events is the owner's end.
func (m *EventMailbox) Events() <-chan Event { return m.events }

// Put queues an event and reports false if it was a message that was dropped.
func (m *EventMailbox) Put(e Event) bool {
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
		m.dropRefusalEvents(e.Filter)
	case SubscriptionRefusalEnded:
		m.dropRefusalEvents(e.Filter)
	case LinkDown:
		m.dropRefusalEventsWhere(func(string) bool { return true })
		m.dropRedundantLinkStates(e)
	case LinkUp:
		m.dropRedundantLinkStates(e)
	}
	m.queuedEvents = append(m.queuedEvents, e)
	select {
	case m.deliveryWake <- struct{}{}:
	default:
	}
	return true
}

// dropRedundantLinkStates drops Up, Down before another Up, and Down, Up before
// another Down, where nothing came in between.
func (m *EventMailbox) dropRedundantLinkStates(e Event) {
	n := len(m.queuedEvents)
	if n < 2 {
		return
	}
	if isLinkUpEvent(m.queuedEvents[n-2]) == isLinkUpEvent(e) && isLinkStateEvent(m.queuedEvents[n-2]) &&
		isLinkStateEvent(m.queuedEvents[n-1]) {
		m.queuedEvents = m.queuedEvents[:n-2]
	}
}

// dropRefusalEvents drops what waits about a filter.
func (m *EventMailbox) dropRefusalEvents(filter string) {
	m.dropRefusalEventsWhere(func(of string) bool { return of == filter })
}

// dropRefusalEventsWhere drops what waits about filters.
func (m *EventMailbox) dropRefusalEventsWhere(these func(filter string) bool) {
	m.queuedEvents = slices.DeleteFunc(m.queuedEvents, func(e Event) bool {
		switch e := e.(type) {
		case SubscriptionRefused:
			return these(e.Filter)
		case SubscriptionRefusalEnded:
			return these(e.Filter)
		}
		return false
	})
}

func isLinkUpEvent(e Event) bool { _, up := e.(LinkUp); return up }

func isLinkStateEvent(e Event) bool { _, down := e.(LinkDown); return down || isLinkUpEvent(e) }

// Close closes Events; what still waits is forgotten.
func (m *EventMailbox) Close() {
	m.mu.Lock()
	if !m.isClosed {
		m.isClosed = true
		m.queuedEvents = nil
		close(m.closed)
	}
	m.mu.Unlock()
	<-m.deliveryEnded
}

func (m *EventMailbox) deliverEvents() {
	defer close(m.deliveryEnded)
	defer close(m.events)
	for {
		e, ok := m.takeNextEvent()
		if !ok {
			select {
			case <-m.deliveryWake:
				continue
			case <-m.closed:
				return
			}
		}
		select {
		case m.events <- e:
			m.releaseHeldMessage(e)
		case <-m.closed:
			return
		}
	}
}

func (m *EventMailbox) takeNextEvent() (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queuedEvents) == 0 {
		return nil, false
	}
	e := m.queuedEvents[0]
	m.queuedEvents[0] = nil // so that its payload can be collected
	m.queuedEvents = m.queuedEvents[1:]
	return e, true
}

func (m *EventMailbox) releaseHeldMessage(e Event) {
	received, ok := e.(MessageReceived)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldMessages--
	m.heldBytes -= received.queuedBytes()
}
