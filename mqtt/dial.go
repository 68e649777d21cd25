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

// openConn makes the network connection of one attempt. Paho could do it itself,
// but not be interrupted: Close would wait for a dead host's timeout.
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
	// else nothing else was sent
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

// defaultTLSConfig is used where nothing is set.
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

// openWebsocket gives up when ctx ends, though the dial below cannot: it ends
// by itself within the timeout, and closes what came too late.
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

// dialWebsocket turns a panic into an error: the dialer that paho uses has one
// for a proxy that answers a status without a text.
func dialWebsocket(u *url.URL, o *Options) (conn net.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("the answer cannot be understood: %v", r)
		}
	}()
	proxy := o.Proxy
	if proxy != nil && proxy.User != nil { // without a password, the name would not be sent either
		password, _ := proxy.User.Password()
		named := *proxy
		named.User = url.UserPassword(proxy.User.Username(), password)
		proxy = &named
	}
	// Never nil, which would mean the proxy that the environment names.
	options := &paho.WebsocketOptions{Proxy: http.ProxyURL(proxy)}
	return paho.NewWebsocket(u.String(), o.tlsConfig(), o.ConnectTimeout, http.Header{}, options)
}

// limitSendBuffer reaches through TLS and WebSocket.
func limitSendBuffer(conn net.Conn, bytes int) {
	for {
		switch c := conn.(type) {
		case *net.TCPConn:
			_ = c.SetWriteBuffer(bytes) // a help only: it works without
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return
		}
	}
}

// describeNetError words an error from dialing or reading for a log line.
func describeNetError(err error) string {
	var syscallErr *os.SyscallError
	var dnsErr *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &dnsErr): // ahead of why the name server does not answer
		return dnsErr.Error()
	case errors.As(err, &syscallErr):
		return syscallErr.Err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
