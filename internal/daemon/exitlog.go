package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
)

// LogShutdown logs why a daemon stops when ctx ends, for example on a signal. The caller calls the returned function
// when the daemon's work is done. It logs the number of suppressed lines, and then "stopped". If that line is missing,
// the daemon was killed.
func LogShutdown(ctx context.Context, log *slog.Logger) (over func()) {
	var began time.Time
	said := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(said)
		began = time.Now()
		log.Info("stopping; work in progress is saved and continues after the next start",
			"why", context.Cause(ctx))
	})
	return func() {
		if cancel() { // the daemon ends by itself or with an error
			logging.LogSuppressedLineCounts(log)
			return
		}
		<-said
		logging.LogSuppressedLineCounts(log)
		log.Info("stopped", "took", time.Since(began).Round(time.Millisecond))
	}
}
