package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
)

// EventDispatcher passes each event's description to the log, the metrics and the condition board. Observe may be
// called concurrently. If an event is logged as a warning or error without a remedy, EventDispatcher adds the remedy of
// the conditions that the event raises. It adds no remedy if the conditions have different remedies.
type EventDispatcher struct {
	Log     *slog.Logger
	Metrics *metrics.EventMetrics
	Board   *status.ConditionBoard

	mu          sync.Mutex
	description observe.EventDescription // description of the current event; reused to avoid allocations
}

// Observe implements observe.Observer.
func (r *EventDispatcher) Observe(e observe.Event) {
	r.mu.Lock()
	if e.Describe(&r.description); !r.description.IsEmpty() { // most events of a large federation have no description
		r.dispatchDescription(&r.description)
		r.description.Reset()
	}
	r.mu.Unlock()
}

func (r *EventDispatcher) dispatchDescription(d *observe.EventDescription) {
	if d.IsLogLevelEnabled == nil {
		d.IsLogLevelEnabled = func(l observe.LogLevel) bool {
			return r.Log.Enabled(context.Background(),
				slog.Level(l))
		}
	}
	remedy := commonRemedy(d.Conditions)
	for _, record := range d.LogRecords {
		if remedy != "" && record.Level >= observe.Warn && !slices.Contains(record.Attributes, any("remedy")) {
			record.Attributes = append(record.Attributes, "remedy", remedy)
		}
		r.Log.Log(context.Background(), slog.Level(record.Level), record.Message, record.Attributes...)
	}
	r.Metrics.ApplySamples(d.MetricSamples)
	r.Board.ApplyDescription(d)
}

// commonRemedy returns the remedy shared by all raised conditions, or "" if their remedies differ.
func commonRemedy(conditions []observe.OperatorCondition) (remedy string) {
	for _, c := range conditions {
		switch {
		case c.Problem == "" || c.Remedy == remedy:
		case remedy == "":
			remedy = c.Remedy
		default:
			return ""
		}
	}
	return remedy
}
