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

// Stats counts from the start of a Server.
type Stats struct {
	Clients                       int   // connected now
	BytesIn, BytesOut             int64 // of MQTT packets
	MessagesIn, MessagesOut       int64
	MessagesDropped, ClosedAsSlow int64 // for clients that did not keep up
	Denied                        int64 // messages that Options.Allow or Quota did not let through, wills too
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

// URL is where clients connect to.
func (s *Server) URL() string { return s.url }

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
		Denied:          s.hook.denied.Load(),
	}
}

// Close closes all connections, after a second at most for what they still
// have to be told. It may be called again.
func (s *Server) Close() error { return s.close() }
