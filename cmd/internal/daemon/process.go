package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
)

// Logger returns the process's logger, to stderr. level, if not nil, changes
// what is logged from then on.
func Logger(w io.Writer, l settings.Log, level *slog.LevelVar) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, Changing: level, Format: l.Format, Journal: os.Getenv("JOURNAL_STREAM") != ""})
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

// Ready is what /-/ready asks: whoever answers is ready.
func Ready() error { return nil }
