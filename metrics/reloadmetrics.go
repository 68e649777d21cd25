package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/observe"
)

// ReloadMetrics holds the metrics about reloads of the configuration file.
type ReloadMetrics struct {
	now                 func() time.Time
	lastReloadSucceeded prometheus.Gauge
	lastSuccessAt       prometheus.Gauge
}

// NewReloadMetrics registers the metrics of reloads. The start of the process is recorded as a successful reload.
func NewReloadMetrics(r Registrar, now func() time.Time) *ReloadMetrics {
	l := &ReloadMetrics{
		now: now,
		lastReloadSucceeded: r.NewGauge("config_last_reload_successful",
			"Whether the last load of the configuration succeeded (1) or failed (0). After a failure the previous "+
				"configuration remains in effect."),
		lastSuccessAt: r.NewGauge("config_last_reload_success_timestamp_seconds",
			"Time of the last successful load of the configuration."),
	}
	l.RecordReload(true) // the process would not have started with an invalid configuration
	return l
}

// RecordReload records whether a reload of the configuration was successful. It is safe for concurrent use.
func (l *ReloadMetrics) RecordReload(good bool) {
	if !good {
		l.lastReloadSucceeded.Set(0)
		return
	}
	l.lastReloadSucceeded.Set(1)
	l.lastSuccessAt.Set(observe.UnixSeconds(l.now()))
}
