package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
)

// sendBuffer bounds what the kernel holds of ours, in bytes. Without it a slow
// link has minutes of chunks ahead of each PINGREQ, and keepalive fails.
const sendBuffer = 128 << 10

// open makes the network connection of one attempt. Paho could do it itself,
// but not be interrupted: Close would wait for a dead host's timeout.
func open(ctx context.Context, u *url.URL, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if u.Scheme == "ws" || u.Scheme == "wss" {
		return openWebsocket(ctx, u, config, timeout)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // a help only: it works without
	}
	if !secure(u) {
		return conn, nil
	}
	config = config.Clone() // nil stays nil
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// openWebsocket gives up when ctx ends, though the dial below cannot: it ends
// by itself within the timeout, and closes what came too late.
func openWebsocket(ctx context.Context, u *url.URL, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result)
	go func() {
		conn, err := paho.NewWebsocket(u.String(), config, timeout, http.Header{}, nil)
		select {
		case dialed <- result{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// linkConn lets the session end a link for a reason of its own. Paho takes a
// connection that was closed under it for one that was closed on purpose, and
// would report nothing; so reading returns the reason instead.
type linkConn struct {
	net.Conn
	reason atomic.Pointer[error]
}

func (c *linkConn) abort(reason error) {
	c.reason.CompareAndSwap(nil, &reason)
	_ = c.Close()
}

func (c *linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		if reason := c.reason.Load(); reason != nil {
			err = *reason
		}
	}
	return n, err
}

// plain words an error from dialing or reading for a log line.
func plain(err error) string {
	var syscallErr *os.SyscallError
	var dnsErr *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &syscallErr):
		return syscallErr.Err.Error()
	case errors.As(err, &dnsErr):
		return dnsErr.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
