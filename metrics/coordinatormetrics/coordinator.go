package coordinatormetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorMetrics maintains the coordinator_* metrics. Events updates the metrics that single events describe, and
// Observe updates the metrics that combine several events.
type CoordinatorMetrics struct {
	*metrics.ReloadMetrics
	Events  *metrics.EventMetrics
	traffic metrics.SessionTrafficCounter
	sums    roundUpdateSums
	reports *fleetReports
}

// MLflowOK shows whether writes to the MLflow server succeed. It is set by an event of internal/coordinatord, which
// this package must not import.
var MLflowOK = observe.OptionalGauge("mlflow_ok",
	"Whether the last write to the MLflow server succeeded (1) or failed and is retried (0). Absent without MLflow.")

// New registers the metrics of a coordinator. now is the clock for timestamps.
func New(reg prometheus.Registerer, now func() time.Time) *CoordinatorMetrics {
	r := metrics.Registrar{Reg: reg, Namespace: "coordinator"}
	events := metrics.NewEventMetrics(r, now, host.Metrics, metrics.TrafficMetrics, coordinator.Metrics,
		round.CoordinatorMetrics, enrol.Metrics, replica.Metrics, roundMeanMetrics, []*observe.Metric{MLflowOK})
	var start observe.EventDescription // a coordinator starts in the idle phase
	round.PhaseEntered{Phase: round.CoordinatorIdle}.Describe(&start)
	events.ApplySamples(start.MetricSamples)
	return &CoordinatorMetrics{
		Events:        events,
		traffic:       metrics.SessionTrafficCounter{Metrics: events, DroppedMessages: coordinator.DroppedMessages},
		ReloadMetrics: metrics.NewReloadMetrics(r, now),
		reports:       newReports(r, now),
	}
}

// CountTraffic counts a message that the MQTT session has sent or received. Unlike Observe, it is safe for concurrent
// use.
func (c *CoordinatorMetrics) CountTraffic(t mqtt.ObservedMessage, kind mqtt.TopicKind) {
	c.traffic.CountMessage(t, kind)
}

var _ observe.Observer = (*CoordinatorMetrics)(nil)

// Observe implements observe.Observer. It updates the metrics that combine several events: the means over the updates
// of a round, and the aggregated reports of all agents.
func (c *CoordinatorMetrics) Observe(e observe.Event) {
	switch e := e.(type) {
	case round.UpdateAccepted:
		if e.Update.Kind == wire.KindTraining {
			c.sums.addUpdate(e.Round, &e.Update, e.Norm)
		}
	case round.RoundClosed:
		if e.Kind == wire.KindTraining {
			var d observe.EventDescription
			c.sums.describeMeans(&d, e.Round, e.AcceptedUpdates)
			c.Events.ApplySamples(d.MetricSamples)
		}
	case coordinator.AgentReportReceived:
		c.reports.recordReport(e)
	case coordinator.AgentListChanged:
		c.reports.forgetAgents(e.RemovedAgents)
	}
}
