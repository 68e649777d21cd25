package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
)

// NewLogger returns the logger of the process. If level is not nil, the log level can be changed through it later. If
// recent is not nil, it keeps the newest records.
func NewLogger(w io.Writer, l settings.Log, level *slog.LevelVar, recent *logging.RecentRecords) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, AdjustableLevel: level, Format: l.Format,
		WritesToJournald: logging.IsJournalStream(w), Recent: recent})
}

// ServeMetrics serves the process's metrics until ctx ends. If listen is empty, it returns a nil Server.
func ServeMetrics(ctx context.Context, listen string, h http.Handler, log *slog.Logger) (*metrics.Server, error) {
	if listen == "" {
		return nil, nil
	}
	s, err := metrics.StartServer(listen, h)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "url", s.URL())
	context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(closing) // ignore the error: the process is about to exit
	})
	return s, nil
}

// AlwaysReady is the readiness check of a process that is always ready.
func AlwaysReady() error { return nil }
