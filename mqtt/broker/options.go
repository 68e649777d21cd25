package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

const (
	defaultListen    = "127.0.0.1:0"
	defaultMaxPacket = 128 << 10
	defaultMaxConns  = 1024

	queueBytes = 8 << 20 // maximum number of bytes that are queued for one client
	// mostPacket is the maximum of Options.MaxPacket. Two packets of this size fit into the queue of a client.
	mostPacket     = queueBytes / 2
	writeTimeout   = 20 * time.Second // timeout for writing pieceBytes bytes
	connectTimeout = 10 * time.Second // maximum time from accept to CONNECT, including the TLS handshake
)

// Options configures a Server. The zero value is valid.
type Options struct {
	// Listen is the address host:port. The default is 127.0.0.1 and a free port.
	Listen string
	// TLS, if set, encrypts the connections; it must contain a certificate. If its ClientAuth verifies client
	// certificates, the user name of a client is the common name of its certificate, whatever CONNECT contains. The
	// client id must then be equal to the common name.
	TLS *tls.Config
	// MaxPacket is the maximum size of an MQTT packet in bytes, by default 131072 and at most 4 MiB. A client that
	// sends a larger packet is disconnected.
	MaxPacket int
	// MaxConns is the maximum number of open connections, by default 1024. Further connections are closed immediately.
	MaxConns int
	// MaxConnsPerIP is the maximum number of connections from one IPv4 address or IPv6 /64 network. The default is half
	// of MaxConns, or MaxConns on loopback, where all clients share an address. A site whose devices share an address
	// needs more.
	MaxConnsPerIP int
	// Authenticate reports whether a CONNECT is accepted. It is called concurrently. Nil accepts every CONNECT. Nil is
	// allowed only on loopback, or if TLS requires a client certificate.
	Authenticate func(clientID, user, password string) bool
	// Allow reports whether a user may publish to a topic (toWrite is true), or subscribe to a filter and receive the
	// messages of a topic (toWrite is false). A forbidden message is acknowledged and dropped, as in Mosquitto; a
	// forbidden filter is refused. With Allow, the client id must be the user name, so that a client cannot disconnect
	// another client. Allow is called concurrently. Nil allows all access; package acl provides the rules of fedmesh.
	Allow func(user, topic string, toWrite bool) bool
	// Quota returns the maximum size in bytes of a user's retained messages. A message counts with its topic and
	// payload plus 512 bytes, and 256 for each level of its topic. A message over the quota is acknowledged and
	// dropped; a will over the quota is published but not retained. Messages loaded from RetainedDir do not count.
	// Quota is called with a lock held. Nil means no limit; package acl provides the quota of fedmesh.
	Quota func(user string) int
	// RetainedDir, if set, is a folder that stores the retained messages across restarts. No other broker may use the
	// folder. It is created if it is missing. Messages from the last seconds before a power cut may be lost.
	RetainedDir string
	// Logger receives messages about refused and closed connections. Nil discards them.
	Logger *slog.Logger
}

// complete sets the defaults and validates the options.
func (o *Options) complete() error {
	if o.Listen == "" {
		o.Listen = defaultListen
	}
	if o.MaxPacket == 0 {
		o.MaxPacket = defaultMaxPacket
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("broker: listen address %q is not host:port, such as 127.0.0.1:1883", o.Listen)
	}
	if o.MaxConnsPerIP == 0 {
		o.MaxConnsPerIP = (o.MaxConns + 1) / 2
		if isLoopback(host) {
			o.MaxConnsPerIP = o.MaxConns
		}
	}
	switch {
	case o.MaxPacket < 0 || o.MaxPacket > mostPacket || o.MaxConns < 0 || o.MaxConnsPerIP < 0:
		return fmt.Errorf("broker: MaxPacket is %d, MaxConns is %d, MaxConnsPerIP is %d: all must be positive, and "+
			"MaxPacket at most 4 MiB", o.MaxPacket, o.MaxConns, o.MaxConnsPerIP)
	case o.TLS != nil && len(o.TLS.Certificates) == 0 && o.TLS.GetCertificate == nil && o.TLS.GetConfigForClient == nil:
		return errors.New("broker: TLS is set but has no server certificate: add one")
	case o.Authenticate == nil && !o.demandsCertificates() && !isLoopback(host):
		return fmt.Errorf("broker: listen address %q is not loopback: set Authenticate, require TLS client "+
			"certificates, or listen on 127.0.0.1", o.Listen)
	case o.Authenticate == nil && !o.demandsCertificates() && (o.Allow != nil || o.Quota != nil):
		return errors.New("broker: Allow and Quota need verified user names: set Authenticate or require TLS client " +
			"certificates")
	}
	return nil
}

func (o *Options) demandsCertificates() bool {
	return o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert
}

// isLoopback reports whether host is "localhost" or a loopback address. It does not use a resolver.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
