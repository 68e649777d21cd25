package broker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

// acceptPause is the wait after a failed accept, such as for lack of file descriptors.
const acceptPause = 100 * time.Millisecond

// listener hands connections to mochi, each behind a queue.
type listener struct {
	socket             net.Listener
	tls                *tls.Config // nil for none
	maxConns, maxPerIP int
	logger             *slog.Logger

	closing      chan struct{}
	closedAsSlow atomic.Int64
	running      sync.WaitGroup // one for each connection, one for Serve

	mu              sync.Mutex
	closed          bool
	refusedSinceLog int       // connections since the log had a line of one
	refusalLoggedAt time.Time // when it had
	conns           map[*conn]struct{}
	connCountByIP   map[netip.Addr]int
	clients         map[string]*conn // the newest with each client id
}

var _ listeners.Listener = (*listener)(nil)

func newListener(socket net.Listener, o Options) *listener {
	return &listener{
		socket: socket, tls: o.TLS, maxConns: o.MaxConns, maxPerIP: o.MaxConnsPerIP, logger: o.Logger,
		closing:       make(chan struct{}),
		conns:         make(map[*conn]struct{}),
		connCountByIP: make(map[netip.Addr]int),
		clients:       make(map[string]*conn),
	}
}

func (l *listener) ID() string              { return "tcp" }
func (l *listener) Protocol() string        { return "tcp" }
func (l *listener) Address() string         { return l.socket.Addr().String() }
func (l *listener) Init(*slog.Logger) error { return nil }

// Serve accepts until Close. Mochi's own listeners end with the first failed accept, and then no client can connect.
func (l *listener) Serve(establish listeners.EstablishFn) {
	if !l.admit(nil) {
		return
	}
	defer l.running.Done()
	for {
		socket, err := l.socket.Accept()
		if err != nil {
			timer := time.NewTimer(acceptPause)
			select {
			case <-l.closing:
				timer.Stop()
				return
			case <-timer.C:
			}
			l.logger.Warn("the broker cannot accept a connection", "error", err)
			continue
		}
		if l.tls != nil {
			socket = tls.Server(socket, l.tls)
		}
		c := newConn(socket, queueBytes, l.reportSlowClient)
		if !l.admit(c) {
			l.reportRefusal(socket.RemoteAddr())
			c.abort()
			continue
		}
		go l.serve(c, establish)
	}
}

// refuseEvery is the least time between two lines of the log about connections that are refused.
const refuseEvery = time.Minute

// reportRefusal tells of a connection that is one too many: there may be thousands a second.
func (l *listener) reportRefusal(from net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusedSinceLog++
	if now := time.Now(); now.Sub(l.refusalLoggedAt) >= refuseEvery {
		l.logger.Warn("the broker refuses connections: it has too many, or is closing", "most", l.maxConns,
			"most_per_address", l.maxPerIP, "refused", l.refusedSinceLog, "last", from.String())
		l.refusedSinceLog, l.refusalLoggedAt = 0, now
	}
}

// admit counts a connection, or the accept loop if c is nil, unless there are too many or the listener is closed. Where
// there are too many, the oldest that has not logged in makes room.
func (l *listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if c != nil {
		from := sourceAddress(c)
		if l.connCountByIP[from] >= l.maxPerIP &&
			!l.closeOldestPendingLogin(func(c *conn) bool { return sourceAddress(c) == from }) ||
			len(l.conns) >= l.maxConns && !l.closeOldestPendingLogin(func(*conn) bool { return true }) {
			return false
		}
		l.conns[c] = struct{}{}
		l.connCountByIP[from]++
	}
	l.running.Add(1)
	return true
}

// loginTime is how long a client has at least for TLS and CONNECT, while others wait for its place.
const loginTime = time.Second

// closeOldestPendingLogin closes the oldest of these connections whose client has not logged in, unless it is young.
// Strangers who open connections and say nothing would shut all others out.
func (l *listener) closeOldestPendingLogin(of func(*conn) bool) bool {
	var oldest *conn
	for c := range l.conns {
		if c.clientID == "" && (oldest == nil || c.acceptedAt.Before(oldest.acceptedAt)) && of(c) {
			oldest = c
		}
	}
	if oldest == nil || time.Since(oldest.acceptedAt) < loginTime {
		return false
	}
	oldest.abort()
	l.uncount(oldest)
	return true
}

// sourceAddress returns the address that a connection comes from. For IPv6 it is the /64 network, since one host has as
// many addresses as it wants.
func sourceAddress(c *conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil { // an IPv4 address has no 64 bits
		addr = network.Addr()
	}
	return addr
}

func (l *listener) serve(c *conn, establish listeners.EstablishFn) {
	defer l.running.Done()
	defer l.forget(c)
	defer c.wait()
	defer close(c.releasedByMochi)
	defer func() {
		_ = c.Close()
		c.releaseRetained() // if mochi got no further
		// A packet that makes mochi panic ends its connection, not the process of
		// the broker.
		if r := recover(); r != nil {
			l.logger.Error("the broker closed a connection", "from", c.RemoteAddr().String(), "error", fmt.Sprint(r))
		}
	}()
	due := time.Now().Add(connectTimeout)
	_ = c.SetReadDeadline(due) // mochi moves it after CONNECT
	err := c.handshake(due)
	if err == nil {
		err = establish(l.ID(), c)
	}
	if err != nil {
		l.logger.Debug("a connection to the broker ended", "from", c.RemoteAddr().String(), "error", err)
	}
}

// takeOverClientID makes c the connection of a client id, and returns when mochi has ended the previous one and
// published its will. Without it the two overlap. Then the end of the older removes the newer from mochi's list, so
// that it stays connected and receives nothing, or the older's will follows the newer's messages.
func (l *listener) takeOverClientID(clientID string, c *conn) {
	l.mu.Lock()
	before := l.clients[clientID]
	l.clients[clientID] = c
	c.clientID = clientID
	l.mu.Unlock()
	if before != nil {
		before.abort()
		<-before.releasedByMochi
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncount(c)
	if l.clients[c.clientID] == c {
		delete(l.clients, c.clientID)
	}
}

// uncount takes a connection from those that are counted, once.
func (l *listener) uncount(c *conn) {
	if _, is := l.conns[c]; !is {
		return
	}
	delete(l.conns, c)
	from := sourceAddress(c)
	if l.connCountByIP[from]--; l.connCountByIP[from] == 0 {
		delete(l.connCountByIP, from)
	}
}

func (l *listener) reportSlowClient(c *conn) {
	l.closedAsSlow.Add(1)
	l.logger.Warn("the broker closed a connection that did not keep up", "from", c.RemoteAddr().String())
}

// Close ends all connections and waits for them: mochi next waits on its own count of them, which must not grow
// meanwhile. Mochi's own way to close clients is not used: it takes a read lock within a read lock, and never returns
// when a client that leaves asks for the write lock in between.
func (l *listener) Close(listeners.CloseFn) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.mu.Unlock()
	close(l.closing)
	_ = l.socket.Close()
	l.mu.Lock()
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}
