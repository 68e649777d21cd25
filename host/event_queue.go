package host

import "slices"

// EventQueue delivers events to a state machine one at a time. An event that occurs while another one is processed is
// queued.
type EventQueue[E any] struct{ events []E } // events[0] is being processed

// ProcessWithFollowUps calls take with ev and then with each queued event, in order. A nested call only queues ev. If
// take returns false, no further event is processed.
func (q *EventQueue[E]) ProcessWithFollowUps(ev E, take func(E) bool) {
	q.events = append(q.events, ev)
	if len(q.events) > 1 {
		return
	}
	for len(q.events) > 0 {
		if !take(q.events[0]) {
			return
		}
		q.events = q.events[1:]
	}
}

// PushFront inserts events before the other queued events, after the event that is being processed.
func (q *EventQueue[E]) PushFront(events ...E) {
	q.events = slices.Insert(q.events, min(1, len(q.events)), events...)
}
