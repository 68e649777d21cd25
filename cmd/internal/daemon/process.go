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

// Logger returns the process's logger, to stderr.
func Logger(w io.Writer, l settings.Log) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, Format: l.Format, Journal: os.Getenv("JOURNAL_STREAM") != ""})
}

// Serve serves the process's metrics until ctx ends, and returns their URL; an
// empty address serves nothing.
func Serve(ctx context.Context, listen string, h http.Handler, log *slog.Logger) (string, error) {
	if listen == "" {
		return "", nil
	}
	s, err := metrics.Listen(listen, h)
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

// Ready is what /-/ready asks: whoever answers is ready.
func Ready() error { return nil }
