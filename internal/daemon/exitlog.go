package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
)

// LogShutdown logs the reason when ctx ends, for example a signal. The caller must call the returned function over when
// the daemon has finished its work. This function logs the number of suppressed log lines, and then "stopped". If the
// line "stopped" is missing in a log, the daemon was killed.
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
		if cancel() { // true if ctx has not ended: the daemon stops without being asked, possibly with an error
			logging.LogSuppressedLineCounts(log)
			return
		}
		<-said
		logging.LogSuppressedLineCounts(log)
		log.Info("stopped", "took", time.Since(began).Round(time.Millisecond))
	}
}
