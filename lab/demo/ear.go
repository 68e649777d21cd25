package demo

import (
	"sync"

	"github.com/fedmesh/fedmesh/mqtt"
)

// ear is a connection that tells what its owner has taken from it.
type ear struct {
	mqtt.Conn
	events chan mqtt.Event
	taken  func(mqtt.Event)
	close  func()
	closed chan struct{}
	ended  chan struct{}
}

func newEar(inner mqtt.Conn, taken func(mqtt.Event)) *ear {
	e := &ear{Conn: inner, events: make(chan mqtt.Event), taken: taken, closed: make(chan struct{}),
		ended: make(chan struct{})}
	e.close = sync.OnceFunc(func() { close(e.closed) })
	go e.pass()
	return e
}

func (e *ear) pass() {
	defer close(e.ended)
	defer close(e.events)
	for x := range e.Conn.Events() {
		select {
		case e.events <- x:
			e.taken(x)
		case <-e.closed: // the owner has gone
		}
	}
}

// Events implements mqtt.Conn.
func (e *ear) Events() <-chan mqtt.Event { return e.events }

// Close implements mqtt.Conn.
func (e *ear) Close() error {
	e.close()
	err := e.Conn.Close()
	<-e.ended
	return err
}
