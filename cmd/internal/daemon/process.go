package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Logger returns the process's logger, to stderr. level, if not nil, changes
// what is logged from then on.
func Logger(w io.Writer, l settings.Log, level *slog.LevelVar) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, Changing: level, Format: l.Format,
		Journal: logging.ToJournal(w)})
}

// Serve serves the process's metrics until ctx ends; an empty address serves
// nothing, which is the nil Server.
func Serve(ctx context.Context, listen string, h http.Handler, log *slog.Logger) (*metrics.Server, error) {
	if listen == "" {
		return nil, nil
	}
	s, err := metrics.Listen(listen, h)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "url", s.URL())
	context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(closing) // the process is about to end
	})
	return s, nil
}

// Ready is what /-/ready asks of a process that has nothing to open first.
func Ready() error { return nil }

// Readiness is what /-/ready asks of a daemon that it observes: it is ready once its state is open, while its state
// folder takes what is written to it and, of a coordinator, while the broker refuses nothing that it needs.
type Readiness struct {
	open    atomic.Bool
	failing atomic.Pointer[error]    // of the state folder; nil while it can be written
	refused atomic.Pointer[[]string] // filters; nil until a fact told
}

// Opened tells that the state is open.
func (r *Readiness) Opened() { r.open.Store(true) }

// Err returns why the daemon is not ready, nil if it is.
func (r *Readiness) Err() error {
	if !r.open.Load() {
		return errors.New("the state folder is being opened")
	}
	if err := r.failing.Load(); err != nil {
		return *err
	}
	if refused := r.refused.Load(); refused != nil && len(*refused) > 0 {
		return fmt.Errorf("the broker refuses %s: %s", strings.Join(*refused, " and "), mqtt.RefusalCauses)
	}
	return nil
}

// fails tells that the state folder does not take a write.
func (r *Readiness) fails(what string, err error) {
	err = fmt.Errorf("cannot %s: %w", what, err)
	r.failing.Store(&err)
}
