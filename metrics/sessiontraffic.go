package metrics

import (
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

var (
	mqttMessages = trafficMetric("mqtt_messages_total",
		"MQTT messages sent and received, by kind of topic.")
	payloadBytes = trafficMetric("mqtt_payload_bytes_total",
		"MQTT payload bytes sent and received, by kind of topic.")
)

func trafficMetric(name, help string) *observe.Metric {
	m := &observe.Metric{Name: name, Help: help, LabelNames: []string{"direction", "kind"}}
	for _, kind := range mqtt.TopicKinds() {
		m.InitialSeries = append(m.InitialSeries, []string{host.DirectionReceived, kind.String()},
			[]string{host.DirectionSent, kind.String()})
	}
	return m
}

// TrafficMetrics lists the metrics of SessionTrafficCounter, except the metric of dropped messages.
var TrafficMetrics = []*observe.Metric{mqttMessages, payloadBytes}

// SessionTrafficCounter counts the messages of a program's sessions with brokers. These messages are not events,
// because a session reports each message from its own goroutine.
type SessionTrafficCounter struct {
	Metrics         *EventMetrics
	DroppedMessages *observe.Metric // created by host.NewDroppedMessagesMetric
}

// CountMessage counts a message. A dropped incoming message is counted as traffic, because it has used the network; an
// outgoing message that was not sent is not counted as traffic. CountMessage is safe for concurrent use.
func (t SessionTrafficCounter) CountMessage(x mqtt.ObservedMessage, kind mqtt.TopicKind) {
	var d observe.EventDescription
	direction := host.DirectionSent
	switch {
	case x.IsIncoming && x.ExceededSizeLimit > 0:
		direction = host.DirectionReceived
		d.IncCounter(t.DroppedMessages, direction, host.DropReasonOversized)
	case x.IsIncoming && x.IsDropped:
		direction = host.DirectionReceived
		d.IncCounter(t.DroppedMessages, direction, host.DropReasonOverflow)
	case x.IsIncoming:
		direction = host.DirectionReceived
	case x.IsDropped:
		d.IncCounter(t.DroppedMessages, direction, host.DropReasonUnsent)
		t.Metrics.ApplySamples(d.MetricSamples)
		return
	}
	d.IncCounter(mqttMessages, direction, kind.String())
	d.AddToCounter(payloadBytes, float64(x.PayloadBytes), direction, kind.String())
	t.Metrics.ApplySamples(d.MetricSamples)
}
