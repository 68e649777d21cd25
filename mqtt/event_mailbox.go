package mqtt

import (
	"slices"
	"sync"
)

// EventMailbox is the bounded queue of events between a connection and its owner. Put never blocks. If the mailbox is
// full, new messages are dropped. Other events are never dropped, but redundant ones are merged: alternating LinkUp and
// LinkDown events cancel out, only the last refusal event of each filter is kept, and LinkDown removes all refusal
// events. The queue is therefore bounded even if the owner stops reading.
type EventMailbox struct {
	maxMessages, maxBytes int // limits on queued messages and their bytes
	events                chan Event
	closed, deliveryEnded chan struct{}
	deliveryWake          chan struct{}

	mu           sync.Mutex
	queuedEvents []Event // events not yet offered to the owner
	heldMessages int     // number of queued messages, including the one being delivered
	heldBytes    int
	isClosed     bool
}

// NewEventMailbox returns a mailbox with limits on the number of queued messages and on their bytes (payload, topic and
// messageOverhead). The caller must close the mailbox.
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

// Events returns the channel from which the owner receives events.
func (m *EventMailbox) Events() <-chan Event { return m.events }

// Put queues an event. It returns false if the mailbox is closed, or if the event is a message that exceeds a limit and
// was dropped.
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

// dropRedundantLinkStates removes the last two queued events if they are a LinkUp and a LinkDown whose effect is
// replaced by the new event e.
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

// dropRefusalEvents removes the queued refusal events of a filter.
func (m *EventMailbox) dropRefusalEvents(filter string) {
	m.dropRefusalEventsWhere(func(of string) bool { return of == filter })
}

// dropRefusalEventsWhere removes the queued refusal events of all filters for which the predicate is true.
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

// Close closes the Events channel and discards all queued events.
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
	m.queuedEvents[0] = nil // release the payload for garbage collection
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
