package agentmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// AgentMetrics holds the metrics of an agent. It is safe for concurrent use.
type AgentMetrics struct {
	*metrics.ReloadMetrics
	Events  *metrics.EventMetrics
	traffic metrics.SessionTrafficCounter
}

// New registers the metrics of an agent. now returns the time for timestamps, and federation is the value of the label
// "federation", which is omitted if empty.
func New(reg prometheus.Registerer, now func() time.Time, federation string) *AgentMetrics {
	r := metrics.Registrar{Reg: reg, Namespace: "agentd"}
	if federation != "" {
		r.ConstLabels = prometheus.Labels{"federation": metrics.SanitizeLabelValue(federation)}
	}
	events := metrics.NewEventMetrics(r, now, host.Metrics, metrics.TrafficMetrics, agent.Metrics,
		external.Metrics, agentround.Metrics)
	return &AgentMetrics{
		ReloadMetrics: metrics.NewReloadMetrics(r, now),
		Events:        events,
		traffic:       metrics.SessionTrafficCounter{Metrics: events, DroppedMessages: agent.DroppedMessages},
	}
}

// CountTraffic counts a message that the MQTT session has sent or received.
func (a *AgentMetrics) CountTraffic(t mqtt.ObservedMessage, kind mqtt.TopicKind) {
	a.traffic.CountMessage(t, kind)
}
