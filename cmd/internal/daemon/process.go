package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
)

// Logger returns the process's logger, to stderr.
func Logger(w io.Writer, l settings.Log) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, Format: l.Format, Journal: os.Getenv("JOURNAL_STREAM") != ""})
}

// Serve serves the process's metrics until ctx ends, and returns their URL; an
// empty address serves nothing.
func Serve(ctx context.Context, m settings.Metrics, reg *prometheus.Registry, log *slog.Logger) (string, error) {
	if m.Listen == "" {
		return "", nil
	}
	s, err := metrics.Listen(m.Listen, metrics.Handler(reg, func() error { return nil }))
	if err != nil {
		return "", err
	}
	url := "http://" + s.Addr().String() + "/metrics"
	log.Info("serving metrics", "url", url)
	context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(closing) // the process is about to end
	})
	return url, nil
}
