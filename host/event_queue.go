package host

import "slices"

// EventQueue passes events to a state machine one at a time. Events that occur during the processing of another event
// are queued.
type EventQueue[E any] struct{ events []E } // events[0] is being processed

// ProcessWithFollowUps calls take for ev and then for each queued event, until take returns false. If it is called
// while an event is being processed, it only adds ev to the queue.
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

// PushFront inserts events at the front of the queue, directly after the event that is being processed.
func (q *EventQueue[E]) PushFront(events ...E) {
	q.events = slices.Insert(q.events, min(1, len(q.events)), events...)
}
