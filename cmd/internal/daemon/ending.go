package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/logging"
)

// Ending logs that a daemon stops, and why, when ctx ends, which signals do. The caller calls what it returns when the
// daemon's work is over: that logs how many lines were held back, and that it stopped. So a log tells a stop from a
// kill.
func Ending(ctx context.Context, log *slog.Logger) (over func()) {
	var began time.Time
	said := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(said)
		began = time.Now()
		log.Info("stopping: what is under way is on disk, and the next start goes on with it",
			"why", context.Cause(ctx))
	})
	return func() {
		if cancel() { // it ends by itself, or with an error
			logging.Flush(log)
			return
		}
		<-said
		logging.Flush(log)
		log.Info("stopped", "took", time.Since(began).Round(time.Millisecond))
	}
}
