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

	queueBytes     = 8 << 20          // that may wait for one client
	mostPacket     = queueBytes / 2   // one that does not fit the queue would close whoever is to receive it
	writeTimeout   = 20 * time.Second // for each 64 KiB of them
	connectTimeout = 10 * time.Second // from accept to CONNECT, TLS included
)

// Options may be zero.
type Options struct {
	// Listen is host:port, 127.0.0.1 and a free port unless set.
	Listen string
	// TLS, if set, is how connections are encrypted; it needs a certificate. If
	// its ClientAuth has client certificates verified, a client's user name is
	// the common name of its certificate, whatever its CONNECT says, and its
	// client id must be the same.
	TLS *tls.Config
	// MaxPacket bounds an MQTT packet, in bytes, 131072 unless set, up to 4 MiB.
	// A client that sends a larger one is disconnected.
	MaxPacket int
	// MaxConns bounds the open connections, 1024 unless set. Further ones are
	// closed at once.
	MaxConns int
	// MaxConnsPerIP bounds those from one IPv4 address or IPv6 /64 network, half
	// of MaxConns unless set; on loopback, where all clients are of this host,
	// MaxConns. A site whose devices share an address needs more.
	MaxConnsPerIP int
	// Authenticate decides about a CONNECT. It is called from several
	// goroutines. Nil lets everyone in who gets that far, and is allowed on
	// loopback, and where TLS demands a client certificate.
	Authenticate func(clientID, user, password string) bool
	// Allow decides whether a user may publish to a topic (toWrite), or subscribe
	// to a filter and receive the messages of a topic. A message that may not be
	// published is acknowledged and dropped, as Mosquitto does; a filter is
	// refused. With Allow a client id must be the user name, so that nobody can
	// throw another out. It is called from several goroutines, for each message
	// and receiver. Nil allows all; package acl has our rules.
	Allow func(user, topic string, toWrite bool) bool
	// Quota bounds, in bytes, what a user may have retained at a time; 512 for
	// each message and 256 for each level of its topic come on top of topic and
	// payload. The excess is acknowledged and dropped; of a will only the
	// retaining is. What Dir kept from before a restart counts for nobody. It is
	// called under a lock. Nil is no bound; package acl has ours.
	Quota func(user string) int
	// RetainedDir, if set, is a folder for this broker alone that keeps the retained
	// messages, so that a restart does not lose them. It is made if it is missing.
	// Messages retained in the last seconds before a power cut may be lost.
	RetainedDir string
	// Logger hears of clients that were refused or closed; nobody does unless set.
	Logger *slog.Logger
}

// complete fills in the defaults and checks the rest.
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
		return fmt.Errorf("broker: packets of %d bytes, %d connections, %d from one address: must be positive, "+
			"packets up to 4 MiB", o.MaxPacket, o.MaxConns, o.MaxConnsPerIP)
	case o.TLS != nil && len(o.TLS.Certificates) == 0 && o.TLS.GetCertificate == nil && o.TLS.GetConfigForClient == nil:
		return errors.New("broker: TLS without a certificate of the broker's; give one")
	case o.Authenticate == nil && !o.demandsCertificates() && !isLoopback(host):
		return fmt.Errorf("broker: listening on %q, which others can reach, needs an Authenticate function, or TLS "+
			"with client certificates; listen on 127.0.0.1 to do without", o.Listen)
	case o.Authenticate == nil && !o.demandsCertificates() && (o.Allow != nil || o.Quota != nil):
		return errors.New("broker: Allow and Quota rest on user names, which nobody checks; give an Authenticate " +
			"function, or TLS with client certificates")
	}
	return nil
}

func (o *Options) demandsCertificates() bool {
	return o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert
}

// isLoopback does not ask a resolver: only addresses and "localhost" count.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
