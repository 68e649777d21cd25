package coordinatord

import (
	"context"
	"sync"

	"github.com/fedmesh/fedmesh/internal/coordinatord/history"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/observe"
)

// logToMLflow logs rounds to an MLflow server in a goroutine, until ctx ends or end is called.
func (f *Federation) logToMLflow(ctx context.Context, t *history.MLflowTracking) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var tracking sync.WaitGroup
	first, failing := true, false
	tracking.Go(func() {
		history.FollowToMLflow(ctx, f.stateDir, t, func(err error) {
			f.o.eventDispatcher.Observe(MLflowHistoryLogged{URL: t.URL, Experiment: t.Experiment, Err: err,
				IsRepeatedOutcome: !first && failing == (err != nil)})
			first, failing = false, err != nil
		})
	})
	return func() {
		cancel()
		tracking.Wait()
	}
}

// MLflowHistoryLogged reports that the history was logged to an MLflow server up to the newest round, or that logging
// failed.
type MLflowHistoryLogged struct {
	URL, Experiment   string
	Err               error
	IsRepeatedOutcome bool // the previous attempt had the same outcome
}

// Describe implements observe.Event.
func (e MLflowHistoryLogged) Describe(d *observe.EventDescription) {
	const condition = "mlflow"
	d.SetBoolGauge(coordinatormetrics.MLflowOK, e.Err == nil)
	if e.Err != nil {
		if !e.IsRepeatedOutcome {
			d.Log(observe.Warn, "cannot log rounds to MLflow", "err", e.Err)
		}
		d.RaiseCondition(condition, "cannot log rounds to MLflow: "+e.Err.Error(),
			"check the server in history.mlflow.url; missing rounds are logged as soon as it replies")
		return
	}
	if !e.IsRepeatedOutcome {
		d.Log(observe.Info, "logging rounds to MLflow", "url", e.URL, "experiment", e.Experiment)
	}
	d.ResolveCondition(condition)
}
