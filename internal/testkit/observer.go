package testkit

import "github.com/fedmesh/fedmesh/observe"

// Observer is a function that implements observe.Observer. Observer is called with each event.
type Observer func(event observe.Event)

// Observe implements observe.Observer.
func (o Observer) Observe(event observe.Event) { o(event) }
