package coordinatord

import (
	"context"
	"sync"

	"github.com/fedmesh/fedmesh/internal/coordinatord/history"
)

// logToMLflow logs rounds to an MLflow server, beside them, until ctx ends or end is called.
func (f *Federation) logToMLflow(ctx context.Context, t *history.Tracking) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var tracking sync.WaitGroup
	first, failing := true, false
	tracking.Go(func() {
		history.FollowToMLflow(ctx, f.dir, t, func(err error) {
			f.o.Metrics.SetMLflowOK(err == nil)
			f.view.SetTrackingError(err)
			switch {
			case err != nil && !failing:
				f.o.Logger.Warn("cannot log rounds to MLflow; they are logged when it answers again", "err", err)
			case err == nil && (failing || first):
				f.o.Logger.Info("rounds are logged to MLflow", "url", t.URL, "experiment", t.Experiment)
			}
			first, failing = false, err != nil
		})
	})
	return func() {
		cancel()
		tracking.Wait()
	}
}
