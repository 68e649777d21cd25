package metrics

import (
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

var (
	messages = trafficMetric("mqtt_messages_total",
		"MQTT messages handed to the network and messages that came in, by direction and kind of topic.")
	payloadBytes = trafficMetric("mqtt_payload_bytes_total",
		"Bytes of payload in these MQTT messages, topics and MQTT's own headers not counted.")
)

func trafficMetric(name, help string) *observe.Metric {
	m := &observe.Metric{Name: name, Help: help, Labels: []string{"direction", "kind"}}
	for _, kind := range mqtt.TopicKinds() {
		m.Series = append(m.Series, []string{host.Received, kind.String()}, []string{host.Sent, kind.String()})
	}
	return m
}

// TrafficMetrics are the metrics that SessionTraffic needs, beside those of dropped messages.
var TrafficMetrics = []*observe.Metric{messages, payloadBytes}

// SessionTraffic counts the messages of a program's sessions with brokers. They are no events: a session reports each
// message from a goroutine of its own.
type SessionTraffic struct {
	Metrics *EventMetrics
	Dropped *observe.Metric // made by host.DroppedMessages
}

// Count counts a message. A received message that was dropped has used the network; a message that was not sent has
// not. Several goroutines may call it.
func (t SessionTraffic) Count(x mqtt.ObservedMessage, kind mqtt.TopicKind) {
	var d observe.Description
	direction := host.Sent
	switch {
	case x.Incoming && x.SizeLimit > 0:
		direction = host.Received
		d.Inc(t.Dropped, direction, host.ReasonOversized)
	case x.Incoming && x.Dropped:
		direction = host.Received
		d.Inc(t.Dropped, direction, host.ReasonOverflow)
	case x.Incoming:
		direction = host.Received
	case x.Dropped:
		d.Inc(t.Dropped, direction, host.ReasonUnsent)
		t.Metrics.Apply(d.Samples)
		return
	}
	d.Inc(messages, direction, kind.String())
	d.Add(payloadBytes, float64(x.Bytes), direction, kind.String())
	t.Metrics.Apply(d.Samples)
}
