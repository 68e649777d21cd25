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

// acceptPause is the delay after a failed accept, for example if no file descriptors are left.
const acceptPause = 100 * time.Millisecond

// listener accepts connections and passes them to mochi, each with a bounded queue.
type listener struct {
	socket             net.Listener
	tls                *tls.Config // TLS configuration; nil without TLS
	maxConns, maxPerIP int
	logger             *slog.Logger

	closing      chan struct{}
	closedAsSlow atomic.Int64
	running      sync.WaitGroup // counts the open connections and the Serve call

	mu              sync.Mutex
	closed          bool
	refusedSinceLog int       // refused connections since the last log line
	refusalLoggedAt time.Time // time of the last log line about refused connections
	conns           map[*conn]struct{}
	connCountByIP   map[netip.Addr]int
	clients         map[string]*conn // newest connection by client id
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

// Serve accepts connections until Close. It continues after a failed accept, unlike mochi's own listeners, which stop
// so that no further client can connect.
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
			l.logger.Warn("broker cannot accept a connection", "error", err)
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

// refuseEvery is the minimum time between log lines about refused connections.
const refuseEvery = time.Minute

// reportRefusal logs refused connections, with a rate limit because there may be thousands per second.
func (l *listener) reportRefusal(from net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusedSinceLog++
	if now := time.Now(); now.Sub(l.refusalLoggedAt) >= refuseEvery {
		l.logger.Warn("broker refused connections: connection limit reached or broker is shutting "+
			"down", "most", l.maxConns,
			"most_per_address", l.maxPerIP, "refused", l.refusedSinceLog, "last", from.String())
		l.refusedSinceLog, l.refusalLoggedAt = 0, now
	}
}

// admit registers a connection, or registers the accept loop if c is nil. It reports false if the listener is closed or
// a connection limit is reached. At a limit, the oldest connection without a login is closed to make room.
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

// loginTime is the minimum time that a client has for the TLS handshake and CONNECT before its connection may be closed
// in favour of another client.
const loginTime = time.Second

// closeOldestPendingLogin closes the oldest connection without a login for which of returns true, if the connection is
// older than loginTime. Otherwise clients that send no CONNECT could lock out all other clients.
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

// sourceAddress returns the source address of a connection. For IPv6 it is the /64 network, because one host can use
// any number of addresses in it.
func sourceAddress(c *conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil {
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
		c.releaseRetained()
		// A packet that makes mochi panic ends only its connection, not the process.
		if r := recover(); r != nil {
			l.logger.Error("broker closed a connection after an internal "+
				"error", "from", c.RemoteAddr().String(), "error", fmt.Sprint(r))
		}
	}()
	due := time.Now().Add(connectTimeout)
	_ = c.SetReadDeadline(due)
	err := c.handshake(due)
	if err == nil {
		err = establish(l.ID(), c)
	}
	if err != nil {
		l.logger.Debug("broker connection ended", "from", c.RemoteAddr().String(), "error", err)
	}
}

// takeOverClientID makes c the connection of a client id. It returns when mochi has ended the previous connection of
// the client id and published its will. If both connections overlapped, the end of the older connection would remove
// the newer connection from mochi's list, or the will of the older connection could follow newer messages.
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

// uncount removes a connection from the counts. A second call has no effect.
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
	l.logger.Warn("broker closed the connection of a slow client", "from", c.RemoteAddr().String())
}

// Close closes all connections and waits until they have ended, because mochi then waits for its own connection count,
// which must not grow any more. Mochi's own method to close clients is not used. It acquires a read lock recursively
// and deadlocks if a leaving client requests the write lock in between.
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
