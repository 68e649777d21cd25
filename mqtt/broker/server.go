package broker

import (
	"errors"
	"fmt"
	"net"
	"sync"

	mochi "github.com/mochi-mqtt/server/v2"
)

// Server is a running broker.
type Server struct {
	mochi    *mochi.Server
	listener *listener
	hook     *mochiHook
	url      string
	close    func() error
}

// Stats holds counters since the start of a Server.
type Stats struct {
	Clients                       int
	BytesIn, BytesOut             int64 // bytes of MQTT packets
	MessagesIn, MessagesOut       int64
	MessagesDropped, ClosedAsSlow int64 // messages dropped, and connections closed, because a client was too slow
	Denied                        int64 // number of messages and subscriptions that were rejected
}

// Start starts a broker, which serves clients until Close is called.
func Start(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("broker: cannot listen on %s: %w", o.Listen, err)
	}
	l := newListener(socket, o)
	server := mochi.New(mochiOptions(o.MaxPacket, o.MaxConns))
	h := &mochiHook{options: o, info: server.Info, takeOverClientID: l.takeOverClientID, quota: newQuota(o.Quota)}
	if o.RetainedDir != "" {
		h.retainedStore = &retainedStore{dir: o.RetainedDir, topics: server.Topics, logger: o.Logger}
		err = h.retainedStore.load(o.MaxPacket)
	}
	if err == nil {
		err = errors.Join(server.AddHook(h, nil), server.AddListener(l), server.Serve())
	}
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("broker: %w", err)
	}
	url := "tcp://" + l.Address()
	if o.TLS != nil {
		url = "tls://" + l.Address()
	}
	return &Server{mochi: server, listener: l, hook: h, url: url, close: sync.OnceValue(server.Close)}, nil
}

// URL returns the URL that clients connect to.
func (s *Server) URL() string { return s.url }

// Stats returns the current counters.
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
		Denied:          s.hook.denied.Load(),
	}
}

// Close closes all connections, after at most a second for sending queued data. It may be called more than once.
func (s *Server) Close() error { return s.close() }
