package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"

	paho "github.com/eclipse/paho.mqtt.golang"
)

// openConn opens the network connection for one connection attempt. It does not use paho's own dialling, which cannot
// be interrupted: Close would wait for the timeout of an unreachable host.
func openConn(ctx context.Context, u *url.URL, o *Options) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	o.Meter.addBytes(connectionOverheadBytes)
	var conn net.Conn
	var err error
	websocket := u.Scheme == "ws" || u.Scheme == "wss"
	if websocket {
		conn, err = openWebsocket(ctx, u, o)
	} else {
		conn, err = openTCP(ctx, u, o)
	}
	// A failed dial causes no further traffic.
	if dialing := (*net.OpError)(nil); err == nil || !errors.As(err, &dialing) || dialing.Op != "dial" {
		if usesTLS(u) {
			o.Meter.addBytes(tlsHandshakeBytes)
		}
		if websocket {
			o.Meter.addBytes(httpUpgradeBytes)
		}
		if o.Proxy != nil {
			o.Meter.addBytes(httpUpgradeBytes)
		}
	}
	if err != nil {
		return nil, err
	}
	limitSendBuffer(conn, o.sendBufferBytes())
	return conn, nil
}

func openTCP(ctx context.Context, u *url.URL, o *Options) (net.Conn, error) {
	var dialer net.Dialer
	next := u.Host
	if o.Proxy != nil {
		next = o.Proxy.Host
	}
	conn, err := dialer.DialContext(ctx, "tcp", next)
	if err == nil && o.Proxy != nil {
		err = openProxyTunnel(ctx, conn, o.Proxy, u.Host)
	}
	if err == nil && usesTLS(u) {
		return tlsHandshake(ctx, conn, u, o.tlsConfig())
	}
	if err != nil && conn != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, err
}

// defaultTLSConfig is the TLS configuration if Options.TLS is nil.
var defaultTLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}

func tlsHandshake(ctx context.Context, conn net.Conn, u *url.URL, config *tls.Config) (net.Conn, error) {
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

// openWebsocket dials a WebSocket and returns early when ctx ends. The dial itself cannot be interrupted: after ctx has
// ended, it continues until its timeout, and its connection is then closed.
func openWebsocket(ctx context.Context, u *url.URL, o *Options) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result)
	go func() {
		conn, err := dialWebsocket(u, o)
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

// dialWebsocket dials a WebSocket. It converts a panic into an error, because paho's dialer panics if a proxy answers
// with a status without text.
func dialWebsocket(u *url.URL, o *Options) (conn net.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("invalid response: %v", r)
		}
	}()
	proxy := o.Proxy
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		named := *proxy
		named.User = url.UserPassword(proxy.User.Username(), password)
		proxy = &named
	}
	// A nil Proxy would select the proxy from the environment.
	options := &paho.WebsocketOptions{Proxy: http.ProxyURL(proxy)}
	return paho.NewWebsocket(u.String(), o.tlsConfig(), o.ConnectTimeout, http.Header{}, options)
}

// limitSendBuffer sets the send buffer of the TCP connection below TLS and WebSocket.
func limitSendBuffer(conn net.Conn, bytes int) {
	for {
		switch c := conn.(type) {
		case *net.TCPConn:
			_ = c.SetWriteBuffer(bytes) // best effort: the buffer size is an optimisation
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return
		}
	}
}

// describeNetError returns the text of a network error for a log line.
func describeNetError(err error) string {
	var syscallErr *os.SyscallError
	var dnsErr *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &dnsErr): // The text of a DNS error is clearer than the text of its cause.
		return dnsErr.Error()
	case errors.As(err, &syscallErr):
		return syscallErr.Err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	}
	return err.Error()
}
