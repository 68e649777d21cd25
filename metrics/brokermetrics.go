package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// NoReason is the label value for a result without a reason.
const NoReason = "none"

// The closed sets that their own packages do not list.
var (
	RoundKinds = []wire.RoundKind{wire.KindStatistics, wire.KindTraining}
	TopicKinds = []mqtt.TopicKind{
		mqtt.KindUnknown, mqtt.KindRound, mqtt.KindDirect, mqtt.KindBlob, mqtt.KindUpdate, mqtt.KindPresence,
		mqtt.KindStatus, mqtt.KindSelfTest,
		mqtt.KindPeer, mqtt.KindBeacon, mqtt.KindRoot,
	}
)

// The directions of a message, and the reasons for dropping a message that only
// the session knows. A host's own list has overflow too.
const (
	Received        = "received"
	Sent            = "sent"
	ReasonOverflow  = "overflow" // the reason DropOverflow of both hosts
	reasonOversized = "oversized"
	reasonUnsent    = "unsent"
)

// Broker has the metrics of a session with the broker, for both programs.
type Broker struct {
	connected              prometheus.Gauge
	reconnects             prometheus.Counter
	RefusedFilters         prometheus.Gauge
	SelfTest               GaugeSet
	Clones                 prometheus.Counter
	messages, messageBytes *prometheus.CounterVec // by direction and kind
	dropped                *prometheus.CounterVec // by direction and reason
	wasUp                  bool
}

// NewBroker registers the metrics of a session. dropReasons are the reasons why the host drops a received message.
func NewBroker(r Registrar, dropReasons []string) *Broker {
	b := &Broker{
		connected: r.Gauge("broker_connected", "Whether the broker is connected (1) or not (0)."),
		reconnects: r.Counter("broker_reconnects_total",
			"Connections to the broker after the first one of this process."),
		RefusedFilters: r.Gauge("broker_subscriptions_refused",
			"Filters that the broker refuses now; it is asked for each again after a minute at the latest. Its "+
				"access rules forbid them, or it is a node of a cluster that has lost its peers."),
		SelfTest: r.GaugeByLabel("broker_self_test",
			"How the test ended of whether the broker carries the largest messages: 1 for its result, 0 for all "+
				"others; all 0 until it ended. Denied: the access rules do not let a message through; swallowed: a "+
				"large one is dropped without a word; disconnected: the broker hangs up on it.",
			"result", ToStrings(mqtt.SelfTestResults())),
		Clones: r.Counter("clones_seen_total",
			"Times that two devices with one identity were seen; the log names them."),
		messages: r.Counters("mqtt_messages_total",
			"MQTT messages handed to the network and messages that came in, by direction and kind of topic.",
			"direction", "kind"),
		messageBytes: r.Counters("mqtt_payload_bytes_total",
			"Bytes of payload in these MQTT messages, topics and MQTT's own headers not counted.", "direction", "kind"),
		dropped: r.Counters("mqtt_dropped_messages_total",
			"MQTT messages that were not used. Received ones by the check they failed, overflow when the mailbox "+
				"was full, or oversized when they had more than 131,072 bytes; sent ones are unsent: the link went "+
				"down first.",
			"direction", "reason"),
	}
	for _, kind := range TopicKinds {
		for _, direction := range []string{Received, Sent} {
			b.messages.WithLabelValues(direction, kind.String())
			b.messageBytes.WithLabelValues(direction, kind.String())
		}
	}
	for _, reason := range append(slices.Clone(dropReasons), reasonOversized) {
		b.dropped.WithLabelValues(Received, reason)
	}
	b.dropped.WithLabelValues(Sent, reasonUnsent)
	return b
}

// LinkChanged notes whether the broker is connected.
func (b *Broker) LinkChanged(up bool) {
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

// CountDropped counts a received message that failed a check of the host.
func (b *Broker) CountDropped(reason string) { b.dropped.WithLabelValues(Received, reason).Inc() }

// Count counts a message of the session. A received message that was dropped has used the network; a message that was
// not sent has not.
func (b *Broker) Count(t mqtt.ObservedMessage, kind mqtt.TopicKind) {
	direction := Sent
	switch {
	case t.Incoming && t.SizeLimit > 0:
		direction = Received
		b.CountDropped(reasonOversized)
	case t.Incoming && t.Dropped:
		direction = Received
		b.CountDropped(ReasonOverflow)
	case t.Incoming:
		direction = Received
	case t.Dropped:
		b.dropped.WithLabelValues(Sent, reasonUnsent).Inc()
		return
	}
	b.messages.WithLabelValues(direction, kind.String()).Inc()
	b.messageBytes.WithLabelValues(direction, kind.String()).Add(float64(t.Bytes))
}
