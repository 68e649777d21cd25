package host

import "slices"

// EventQueue gives a machine its events one at a time: one that comes of an effect waits until the effects before it
// are done.
type EventQueue[E any] struct{ events []E } // the one that the machine takes, and those that wait for it

// ProcessWithFollowUps has take called with the event, and with those that come of it, in order. When take reports
// false, what it does must not go on: it is called no more.
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

// PushFront puts events before those that wait.
func (q *EventQueue[E]) PushFront(events ...E) {
	q.events = slices.Insert(q.events, min(1, len(q.events)), events...)
}
