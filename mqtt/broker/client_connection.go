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
	// pieceBytes is the approximate number of bytes per write. Each write has its own deadline, so that a slow client
	// stays connected but a client that has stopped reading is disconnected.
	pieceBytes = 64 << 10
	// lingerTimeout is the maximum time to send queued data after mochi closes the connection, such as a CONNACK with a
	// refusal.
	lingerTimeout = time.Second
)

var errTooSlow = errors.New("broker: client is too slow, its send queue is full")

// conn is a connection whose Write never blocks. Write appends the data to a queue, which a separate goroutine sends.
// If the queue is full, the connection is closed.
type conn struct {
	net.Conn
	socket          net.Conn // TCP connection below TLS; equal to Conn if TLS is not used
	maxQueuedBytes  int      // limit of the queue in bytes
	overflow        func(*conn)
	wake            chan struct{}
	done            chan struct{} // closed when the writer has ended
	releasedByMochi chan struct{} // closed when mochi no longer uses the connection
	acceptedAt      time.Time
	clientID        string      // client id; empty until CONNECT was accepted; protected by the listener's lock
	user            string      // user name from the client certificate, or from CONNECT
	denialLogged    atomic.Bool // whether a denial has been logged
	unlockRetained  func()

	mu          sync.Mutex
	queue       [][]byte
	queuedBytes int // bytes in the queue and in the current write
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

// handshake performs the TLS handshake, if TLS is used, and sets the user name from the client certificate. It does not
// change the read deadline.
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
			return errors.New("client certificate has no common name, which is required as the user name")
		}
	}
	return nil
}

// releaseRetained releases the read lock on the retained messages if this connection holds it.
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

// SetDeadline sets only the read deadline. Mochi calls it with the keepalive timeout, which does not apply to writes.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Close stops reading immediately. It closes the connection when the queue is sent, at most lingerTimeout later.
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

// abort closes the connection and discards the queue.
func (c *conn) abort() {
	c.mu.Lock()
	c.closed = true
	c.queue = nil
	c.mu.Unlock()
	_ = c.socket.Close()
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
		if !c.closed {
			_ = c.SetWriteDeadline(time.Time{})
		}
		c.mu.Unlock()
	}
}

// hangUp closes the connection. With TLS it first sends a close_notify, within lingerTimeout.
func (c *conn) hangUp() {
	timer := time.AfterFunc(lingerTimeout, func() { _ = c.socket.Close() })
	defer timer.Stop()
	_ = c.Conn.Close()
}

// dequeuePiece removes about pieceBytes from the queue and sets the deadline for writing them.
func (c *conn) dequeuePiece() (piece net.Buffers, size int, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < len(c.queue) && size < pieceBytes; n++ {
		piece = append(piece, c.queue[n])
		size += len(c.queue[n])
		c.queue[n] = nil // release the data for garbage collection
	}
	c.queue = c.queue[n:]
	if size > 0 && !c.closed {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return piece, size, c.closed
}
