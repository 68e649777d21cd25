package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
)

// EventReader passes the description of each event to the log, the metrics and the board of conditions. A warning or an
// error of an event that begins a condition gets the condition's remedy as an attribute. Several goroutines may use a
// reader at once.
type EventReader struct {
	Log     *slog.Logger
	Metrics *metrics.EventMetrics
	Board   *status.Board

	mu          sync.Mutex
	description observe.Description // of the present event; its memory is used again
}

// Observe implements observe.Observer.
func (r *EventReader) Observe(e observe.Event) {
	r.mu.Lock()
	if e.Describe(&r.description); !r.description.Empty() { // most events of a large federation say nothing
		r.pass(&r.description)
		r.description.Reset()
	}
	r.mu.Unlock()
}

func (r *EventReader) pass(d *observe.Description) {
	if d.LogEnabled == nil {
		d.LogEnabled = func(l observe.Level) bool { return r.Log.Enabled(context.Background(), slog.Level(l)) }
	}
	remedy := ""
	for _, c := range d.Conditions {
		remedy = cmp.Or(remedy, c.Remedy)
	}
	for _, record := range d.Records {
		if remedy != "" && record.Level >= observe.Warn {
			record.Attributes = append(record.Attributes, "remedy", remedy)
		}
		r.Log.Log(context.Background(), slog.Level(record.Level), record.Message, record.Attributes...)
	}
	r.Metrics.Apply(d.Samples)
	r.Board.Apply(d)
}
