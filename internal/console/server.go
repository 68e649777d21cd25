package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// Config configures a Server.
type Config struct {
	Program string // name of the daemon, such as "coordinator"
	Page    Page
	Listen  string // host:port
	TLS     *tls.Config
	// Tokens is the file with the tokens and certificate names of those who may use the console. If it is empty,
	// everyone who can connect may read, so Listen must be a loopback address.
	Tokens  api.TokenFile
	Control bool // permits changes to callers with the role operate
	// SessionKey is the secret with which session cookies are authenticated. Several coordinators of a federation use
	// the same key, so that a session continues after a takeover.
	SessionKey []byte
	Now        func() time.Time
	Log        *slog.Logger
}

// Content is what the console shows.
type Content struct {
	Routes  []api.Route
	Auditor api.RequestAuditor // see api.Handler
	Tables  []Table
	Absence *Absence // set while the program has nothing to show
}

// Absence explains why the program has nothing to show.
type Absence struct {
	Reason string `json:"reason"`
	URL    string `json:"url,omitempty"` // console of the coordinator that leads; empty if unknown
}

// Server serves the console.
type Server struct {
	cfg     Config
	access  access
	content atomic.Pointer[servedContent]
	address net.Addr
}

// servedContent is Content with what the server derives from it.
type servedContent struct {
	Content
	api  http.Handler
	feed *feed
}

// Start serves the console until ctx ends. It shows nothing until SetContent is called.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, address: l.Addr()}
	s.access.cfg = &s.cfg
	s.SetContent(Content{Absence: &Absence{Reason: "the " + cfg.Program + " is starting"}})
	if cfg.TLS != nil {
		l = tls.NewListener(l, cfg.TLS)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("console stopped", "err", err)
		}
	}()
	cfg.Log.Info("serving the console", "url", s.URL())
	return s, nil
}

// URL returns the address of the console.
func (s *Server) URL() string {
	scheme := "http"
	if s.cfg.TLS != nil {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s/", scheme, s.address)
}

// SetContent replaces what the console shows. Open pages reconnect.
func (s *Server) SetContent(c Content) {
	now := &servedContent{Content: c, feed: newFeed(c.Tables)}
	now.api = api.Handler(c.Routes, callerOfRequest, c.Auditor)
	if before := s.content.Swap(now); before != nil {
		close(before.feed.replaced)
	}
}

// callerKey is the context key of the caller that Handler has identified.
type callerKey struct{}

func callerOfRequest(r *http.Request) api.Caller {
	c, _ := r.Context().Value(callerKey{}).(api.Caller)
	return c
}

// Session describes the caller to the page.
type Session struct {
	Program       string   `json:"program"`
	Role          api.Role `json:"role"` // empty if the caller must log in
	Name          string   `json:"name"`
	RequiresLogin bool     `json:"login"`   // callers need a token or a certificate
	IsNamed       bool     `json:"named"`   // the caller has shown a token or a certificate; see api.Route.WithName
	MayOperate    bool     `json:"operate"` // the caller may change something
	Absence       *Absence `json:"absence,omitempty"`
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.cfg.Page.handler())
	mux.HandleFunc("GET /v1/session", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c := callerOfRequest(r)
		return writeJSON(w, Session{Program: s.cfg.Program, Role: c.Role, Name: c.Name,
			RequiresLogin: s.access.requiresLogin(), IsNamed: c.Role != "" && !c.IsAnonymous,
			MayOperate: c.Role == api.RoleOperate, Absence: s.content.Load().Absence})
	}))
	mux.HandleFunc("POST /v1/session", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if err := s.access.logIn(w, r); err != nil {
			return err
		}
		return writeJSON(w, struct{}{})
	}))
	mux.HandleFunc("DELETE /v1/session", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		s.access.setCookie(w, r, "", -time.Second)
		return writeJSON(w, struct{}{})
	}))
	mux.HandleFunc("GET /v1/feed", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if callerOfRequest(r).Role == "" {
			return api.ErrTokenRequired
		}
		c := s.content.Load()
		if c.Absence != nil {
			return absent(c.Absence)
		}
		return c.feed.serve(w, r)
	}))
	mux.HandleFunc("/v1/", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c := s.content.Load()
		if c.Absence != nil {
			return absent(c.Absence)
		}
		c.api.ServeHTTP(w, r)
		return nil
	}))
	var crossOrigin http.CrossOriginProtection
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		api.WriteError(w, &api.Error{Status: http.StatusForbidden,
			Problem: "the request comes from a page of another site, so it is rejected"})
	}))
	return secureHeaders(crossOrigin.Handler(mux))
}

// handle identifies the caller, calls serve, and writes its error.
func (s *Server) handle(serve func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		c, err := s.access.identify(r)
		if err == nil {
			err = serve(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
		}
		if err != nil {
			api.WriteError(w, asAPIError(err))
		}
	}
}

// absent returns the response to a request while the program has nothing to show.
func absent(a *Absence) error {
	return &api.Error{Status: http.StatusServiceUnavailable, Problem: a.Reason}
}

func writeJSON(w http.ResponseWriter, x any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(x) // the client may have disconnected
	return nil
}

// contentPolicy lets a page load scripts, styles, pictures and data only from the console itself, and forbids inline
// scripts, inline styles, forms and frames.
var contentPolicy = strings.Join([]string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
	"img-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}, "; ")

// secureHeaders adds the headers that protect a page in the browser to each response.
func secureHeaders(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      contentPolicy,
			"X-Frame-Options":              "DENY",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		h.ServeHTTP(w, r)
	})
}
