package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pieceBytes is about how much is written at a time, each with a deadline:
	// so a slow client that reads stays, one that does not read goes.
	pieceBytes = 64 << 10
	// lingerTimeout bounds the sending of what is queued when mochi closes,
	// such as a CONNACK that says why.
	lingerTimeout = time.Second
)

var errTooSlow = errors.New("broker: the client does not keep up")

// conn is a connection whose Write never blocks: it queues, and a goroutine
// of the connection writes. An overflow closes it.
type conn struct {
	net.Conn
	socket          net.Conn // below TLS, or the same
	maxQueuedBytes  int      // bytes
	overflow        func(*conn)
	wake            chan struct{}
	done            chan struct{} // closed when the writer has ended
	releasedByMochi chan struct{} // closed when mochi has done with it
	acceptedAt      time.Time
	clientID        string      // once known; belongs to the listener's lock
	user            string      // from the certificate, or once CONNECT is accepted
	denialLogged    atomic.Bool // a denial is in the log already
	unlockRetained  func()      // of what is retained, while it is looked through; belongs to the goroutine that reads

	mu          sync.Mutex
	queue       [][]byte
	queuedBytes int // bytes, those being written too
	closed      bool
}

func newConn(socket net.Conn, limit int, overflow func(*conn)) *conn {
	c := &conn{
		Conn: socket, socket: socket, maxQueuedBytes: limit, overflow: overflow,
		wake: make(chan struct{}, 1), done: make(chan struct{}), releasedByMochi: make(chan struct{}),
		acceptedAt: time.Now(),
	}
	if secured, ok := socket.(*tls.Conn); ok {
		c.socket = secured.NetConn()
	}
	go c.write()
	return c
}

// handshake makes the connection's TLS, if any, and takes the user's name from
// the client's certificate. It leaves the deadline for reading as it is.
func (c *conn) handshake(due time.Time) error {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	_ = secured.SetWriteDeadline(due)
	if err := secured.Handshake(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	_ = secured.SetWriteDeadline(time.Time{})
	if chains := secured.ConnectionState().VerifiedChains; len(chains) > 0 {
		if c.user = chains[0][0].Subject.CommonName; c.user == "" {
			return errors.New("the client's certificate has no common name, which is to be the user's name")
		}
	}
	return nil
}

// releaseRetained ends a look through what is retained, if there is one.
func (c *conn) releaseRetained() {
	if unlock := c.unlockRetained; unlock != nil {
		c.unlockRetained = nil
		unlock()
	}
}

// Write queues a copy of p.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	if c.queuedBytes+len(p) > c.maxQueuedBytes {
		c.mu.Unlock()
		c.abort()
		c.overflow(c)
		return 0, errTooSlow
	}
	c.queue = append(c.queue, append([]byte(nil), p...))
	c.queuedBytes += len(p)
	c.mu.Unlock()
	c.signal()
	return len(p), nil
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// SetDeadline sets the deadline for reading only: mochi calls it with the
// keepalive, which says nothing about writing.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Close ends reading at once, and the connection when what is queued is sent,
// or a second later.
func (c *conn) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	c.mu.Unlock()
	if !already {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		_ = c.SetWriteDeadline(time.Now().Add(lingerTimeout))
		c.signal()
	}
	return nil
}

// abort closes the connection and drops the queue.
func (c *conn) abort() {
	c.mu.Lock()
	c.closed = true
	c.queue = nil
	c.mu.Unlock()
	_ = c.socket.Close() // tls.Conn would send a close_notify first, for up to five seconds
	c.signal()
}

// wait returns when the connection is closed and its writer has ended.
func (c *conn) wait() { <-c.done }

func (c *conn) write() {
	defer close(c.done)
	defer c.hangUp()
	for {
		piece, size, closed := c.dequeuePiece()
		if size == 0 {
			if closed {
				return
			}
			<-c.wake
			continue
		}
		if _, err := piece.WriteTo(c.Conn); err != nil {
			c.abort()
			return
		}
		c.mu.Lock()
		c.queuedBytes -= size
		if !c.closed { // TLS writes by itself at times, and never again after a deadline
			_ = c.SetWriteDeadline(time.Time{})
		}
		c.mu.Unlock()
	}
}

// hangUp closes the connection, with a close_notify if there is TLS and it can
// be sent at once.
func (c *conn) hangUp() {
	timer := time.AfterFunc(lingerTimeout, func() { _ = c.socket.Close() })
	defer timer.Stop()
	_ = c.Conn.Close()
}

// dequeuePiece removes about pieceBytes from the queue, and sets their deadline.
func (c *conn) dequeuePiece() (piece net.Buffers, size int, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < len(c.queue) && size < pieceBytes; n++ {
		piece = append(piece, c.queue[n])
		size += len(c.queue[n])
		c.queue[n] = nil // so that it can be collected
	}
	c.queue = c.queue[n:]
	if size > 0 && !c.closed { // else Close has set the last deadline
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return piece, size, c.closed
}
