package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// noReason is the label value for a result without a reason.
const noReason = "none"

// The closed sets that their own packages do not list.
var (
	roundKinds = []wire.Kind{wire.KindStatistics, wire.KindTraining}
	topicKinds = []mqtt.Kind{
		mqtt.KindUnknown, mqtt.KindRound, mqtt.KindDirect, mqtt.KindBlob, mqtt.KindUpdate, mqtt.KindPresence,
		mqtt.KindStatus, mqtt.KindLoop,
		mqtt.KindPeer, mqtt.KindBeacon, mqtt.KindRoot,
	}
)

// The directions of a message, and the reasons for dropping a message that only
// the session knows. A host's own list has overflow too.
const (
	received  = "received"
	sent      = "sent"
	overflow  = string(coordinator.DropOverflow) // and agent.DropOverflow
	oversized = "oversized"
	unsent    = "unsent"
)

// broker has the metrics of a session with the broker, for both programs.
type broker struct {
	connected        prometheus.Gauge
	reconnects       prometheus.Counter
	refusedFilters   prometheus.Gauge
	selfTest         gaugeSet
	clones           prometheus.Counter
	messages, octets *prometheus.CounterVec // by direction and kind
	dropped          *prometheus.CounterVec // by direction and reason
	wasUp            bool
}

func newBroker(r registrar, dropReasons []string) *broker {
	b := &broker{
		connected: r.gauge("broker_connected", "Whether the broker is connected (1) or not (0)."),
		reconnects: r.counter("broker_reconnects_total",
			"Connections to the broker after the first one of this process."),
		refusedFilters: r.gauge("broker_subscriptions_refused",
			"Filters that the broker refuses now; it is asked for each again after a minute at the latest. Its "+
				"access rules forbid them, or it is a node of a cluster that has lost its peers."),
		selfTest: r.gaugeBy("broker_self_test",
			"How the test ended of whether the broker carries the largest messages: 1 for its result, 0 for all "+
				"others; all 0 until it ended. Denied: the access rules do not let a message through; swallowed: a "+
				"large one is dropped without a word; disconnected: the broker hangs up on it.",
			"result", words(mqtt.SelfTestResults())),
		clones: r.counter("clones_seen_total",
			"Times that two devices with one identity were seen; the log names them."),
		messages: r.counters("mqtt_messages_total",
			"MQTT messages handed to the network and messages that came in, by direction and kind of topic.",
			"direction", "kind"),
		octets: r.counters("mqtt_payload_bytes_total",
			"Bytes of payload in these MQTT messages, topics and MQTT's own headers not counted.", "direction", "kind"),
		dropped: r.counters("mqtt_dropped_messages_total",
			"MQTT messages that were not used. Received ones by the check they failed, overflow when the mailbox "+
				"was full, or oversized when they had more than 131,072 bytes; sent ones are unsent: the link went "+
				"down first.",
			"direction", "reason"),
	}
	for _, kind := range topicKinds {
		for _, direction := range []string{received, sent} {
			b.messages.WithLabelValues(direction, kind.String())
			b.octets.WithLabelValues(direction, kind.String())
		}
	}
	for _, reason := range append(slices.Clone(dropReasons), oversized) {
		b.dropped.WithLabelValues(received, reason)
	}
	b.dropped.WithLabelValues(sent, unsent)
	return b
}

func (b *broker) linkChanged(up bool) {
	if !up {
		b.connected.Set(0)
		return
	}
	b.connected.Set(1)
	if b.wasUp {
		b.reconnects.Inc()
	}
	b.wasUp = true
}

// notUsed counts a received message that failed a check of the host.
func (b *broker) notUsed(reason string) { b.dropped.WithLabelValues(received, reason).Inc() }

// traffic counts a message of the session. A received message that was dropped has used the network; a message that was
// not sent has not.
func (b *broker) traffic(t mqtt.Traffic, kind mqtt.Kind) {
	direction := sent
	switch {
	case t.Incoming && t.SizeLimit > 0:
		direction = received
		b.notUsed(oversized)
	case t.Incoming && t.Dropped:
		direction = received
		b.notUsed(overflow)
	case t.Incoming:
		direction = received
	case t.Dropped:
		b.dropped.WithLabelValues(sent, unsent).Inc()
		return
	}
	b.messages.WithLabelValues(direction, kind.String()).Inc()
	b.octets.WithLabelValues(direction, kind.String()).Add(float64(t.Bytes))
}
