package demo

import (
	"sync"

	"github.com/fedmesh/fedmesh/mqtt"
)

// tappedConn is an MQTT connection that calls taken for each event, after the owner of the connection has received the
// event.
type tappedConn struct {
	mqtt.Conn
	events chan mqtt.Event
	taken  func(mqtt.Event)
	close  func()
	closed chan struct{}
	ended  chan struct{}
}

func newTappedConn(inner mqtt.Conn, taken func(mqtt.Event)) *tappedConn {
	e := &tappedConn{Conn: inner, events: make(chan mqtt.Event), taken: taken, closed: make(chan struct{}),
		ended: make(chan struct{})}
	e.close = sync.OnceFunc(func() { close(e.closed) })
	go e.pass()
	return e
}

func (e *tappedConn) pass() {
	defer close(e.ended)
	defer close(e.events)
	for x := range e.Conn.Events() {
		select {
		case e.events <- x:
			e.taken(x)
		case <-e.closed: // The owner has closed the connection: discard the event.
		}
	}
}

// Events implements mqtt.Conn. Events returns the events of the inner connection.
func (e *tappedConn) Events() <-chan mqtt.Event { return e.events }

// Close implements mqtt.Conn. Close waits until the forwarding goroutine has ended.
func (e *tappedConn) Close() error {
	e.close()
	err := e.Conn.Close()
	<-e.ended
	return err
}
