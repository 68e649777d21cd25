package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
)

const (
	defaultListen    = "127.0.0.1:0"
	defaultMaxPacket = 128 << 10
	defaultMaxConns  = 1024

	queueBytes     = 8 << 20          // that may wait for one client
	writeTimeout   = 20 * time.Second // for each 64 KiB of them
	connectTimeout = 10 * time.Second // from accept to CONNECT
)

// Options may be zero.
type Options struct {
	// Listen is host:port, 127.0.0.1 and a free port unless set.
	Listen string
	// MaxPacket bounds an MQTT packet, in bytes, 131072 unless set. Whoever
	// sends a larger one is disconnected.
	MaxPacket int
	// MaxConns bounds the open connections, 1024 unless set. Further ones are
	// closed at once.
	MaxConns int
	// Authenticate decides about a CONNECT. It is called from several
	// goroutines. Nil lets everyone in, and is allowed on loopback only.
	Authenticate func(clientID, user, password string) bool
	// Logger hears of clients that were refused or closed; nobody does unless set.
	Logger *slog.Logger
}

// Server is a running broker.
type Server struct {
	mochi    *mochi.Server
	listener *listener
	close    func() error
}

// Stats counts from the start of a Server.
type Stats struct {
	Clients                       int   // connected now
	BytesIn, BytesOut             int64 // of MQTT packets
	MessagesIn, MessagesOut       int64
	MessagesDropped, ClosedAsSlow int64 // for clients that did not keep up
}

// Start listens, and serves until Close.
func Start(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("broker: cannot listen on %s: %w", o.Listen, err)
	}
	l := newListener(socket, o.MaxConns, o.Logger)
	server := mochi.New(mochiOptions(o.MaxPacket, o.MaxConns))
	if err := errors.Join(
		server.AddHook(&hook{authenticate: o.Authenticate, logger: o.Logger, info: server.Info, takeOver: l.takeOver}, nil),
		server.AddListener(l),
		server.Serve(),
	); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("broker: %w", err)
	}
	return &Server{mochi: server, listener: l, close: sync.OnceValue(server.Close)}, nil
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
	switch {
	case err != nil:
		return fmt.Errorf("broker: listen address %q is not host:port, such as 127.0.0.1:1883", o.Listen)
	case o.MaxPacket < 0 || o.MaxPacket > 256<<20 || o.MaxConns < 0:
		return fmt.Errorf("broker: packets of %d bytes, %d connections: must be positive, packets up to 256 MiB", o.MaxPacket, o.MaxConns)
	case o.Authenticate == nil && !isLoopback(host):
		return fmt.Errorf("broker: listening on %q, which others can reach, needs an Authenticate function; listen on 127.0.0.1 to do without", o.Listen)
	}
	return nil
}

// isLoopback does not ask a resolver: only addresses and "localhost" count.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// URL is where clients connect to.
func (s *Server) URL() string { return "tcp://" + s.listener.Address() }

// Stats returns the counters.
func (s *Server) Stats() Stats {
	info := s.mochi.Info.Clone()
	return Stats{
		Clients:         int(info.ClientsConnected),
		BytesIn:         info.BytesReceived,
		BytesOut:        info.BytesSent,
		MessagesIn:      info.MessagesReceived,
		MessagesOut:     info.MessagesSent,
		MessagesDropped: info.MessagesDropped + info.InflightDropped,
		ClosedAsSlow:    s.listener.closedAsSlow.Load(),
	}
}

// Close closes all connections, after a second at most for what they still
// have to be told. It may be called again.
func (s *Server) Close() error { return s.close() }
