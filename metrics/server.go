package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Handler serves GET and HEAD requests for /metrics, /-/healthy and /-/ready.
//
// The endpoint /-/healthy shows only that the process answers, because a restart does not help if the network is down.
// If ready returns an error, /-/ready answers with the error and status 503. ready must be safe for concurrent use and
// must not block.
func Handler(reg *prometheus.Registry, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serveTextMetrics(reg))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "healthy")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
	return mux
}

// serveTextMetrics serves all metrics in the Prometheus text format. It avoids promhttp, whose additional formats would
// add 200 kB to the binary.
func serveTextMetrics(reg prometheus.Gatherer) http.Handler {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		families, err := reg.Gather()
		if err != nil {
			http.Error(w, "cannot gather the metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		w.Header().Add("Vary", "Accept-Encoding")
		out := io.Writer(w)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			defer zip.Close()
			out = zip
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
				return // the client has disconnected
			}
		}
	})
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // ignore the error, because the client may have disconnected
}

// Server is a running HTTP server.
type Server struct {
	http     *http.Server
	listener net.Listener
	stopped  chan struct{} // closed when serving has ended
	err      error         // error that ended serving; valid after stopped is closed
}

// StartServer serves h at host:port. Without a host it listens only on loopback; 0.0.0.0 and [::] mean all interfaces.
// Port 0 selects a free port, see Addr.
func StartServer(addr string, h http.Handler) (*Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: listen address %q is not host:port, such as 127.0.0.1:9464: %w", addr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("metrics: cannot listen on %q: the port may be in use, or the address may belong to "+
			"another machine: %w",
			addr, err)
	}
	s := &Server{
		// The timeouts prevent slow clients from occupying connections.
		http: &http.Server{
			Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		},
		listener: listener, stopped: make(chan struct{}),
	}
	go func() {
		defer close(s.stopped)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("metrics: server stopped unexpectedly: %w", err)
		}
	}()
	return s, nil
}

// URL returns the URL of the metrics. It returns "" for a nil Server.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	return "http://" + s.Addr().String() + "/metrics"
}

// Alive returns nil while the server is running, and otherwise the reason why it has stopped. For a nil Server it
// always returns nil.
func (s *Server) Alive(context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case <-s.stopped:
		return s.err
	default:
		return nil
	}
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening and waits for active requests until ctx is done. It then aborts them and returns an error. It
// also returns an earlier serving error.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("metrics: active requests were aborted: %w", err), s.http.Close())
	}
	<-s.stopped
	return errors.Join(err, s.err)
}
