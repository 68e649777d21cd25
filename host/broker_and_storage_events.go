package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// Metrics lists the metrics that the events in this file change.
var Metrics = []*observe.Metric{brokerConnected, brokerReconnects, refusedSubscriptions, brokerSelfTest, storageOK,
	ClonesSeen}

var (
	brokerConnected = observe.Gauge("broker_connected",
		"Whether the program is connected to the broker (1) or not (0).")
	brokerReconnects = &observe.Metric{Name: "broker_reconnects_total",
		Help:          "Reconnections to the broker since the process started.",
		InitialSeries: observe.UnlabeledSeries, SkipsFirstAdd: true}
)

// BrokerLinkChanged reports that the broker connection was established, was lost, or could not be established.
type BrokerLinkChanged struct {
	IsConnected bool
	Err         error // reason for the disconnection; nil if connected
	// time at which a planned disconnection of an agent ends; zero if the disconnection is unplanned
	ReconnectAt time.Time
}

// Describe implements observe.Event. It writes no log message, because the MQTT session logs changes of the connection.
func (e BrokerLinkChanged) Describe(d *observe.EventDescription) {
	d.SetBoolGauge(brokerConnected, e.IsConnected)
	switch {
	case e.IsConnected:
		d.IncCounter(brokerReconnects)
		d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
	case !e.ReconnectAt.IsZero():
		d.ShowStatusValue(observe.ConnectionStatus,
			"disconnected as planned until "+e.ReconnectAt.Local().Format(time.DateTime))
	default:
		d.ShowStatusValue(observe.ConnectionStatus, fmt.Sprintf("not connected to the broker: %v", e.Err))
	}
}

var refusedSubscriptions = observe.Gauge("broker_subscriptions_refused",
	"Number of subscriptions that the broker currently refuses. Each subscription is retried within a minute.")

// RefusedSubscriptionsChanged reports a change in the list of subscriptions that the broker refuses. The program
// retries refused subscriptions.
type RefusedSubscriptionsChanged struct {
	Filters               []string
	NeighborBrokerFilters []string // subscriptions that a separate broker for neighbours refuses
}

// Describe implements observe.Event. An agent remains ready if only subscriptions at the neighbours' broker are
// refused.
func (e RefusedSubscriptionsChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(refusedSubscriptions, float64(len(e.Filters)+len(e.NeighborBrokerFilters)))
	if len(e.Filters)+len(e.NeighborBrokerFilters) == 0 {
		d.Log(observe.Info, "broker accepts all subscriptions again")
	} else {
		d.Log(observe.Error, "broker refuses subscriptions",
			"topics", slices.Concat(e.Filters, e.NeighborBrokerFilters))
	}
	if len(e.Filters) > 0 {
		d.RaiseNotReadyCondition("subscriptions", "the broker refuses subscriptions to "+observe.JoinNames(e.Filters),
			mqtt.RefusalRemedy)
	} else {
		d.ResolveCondition("subscriptions")
	}
	if len(e.NeighborBrokerFilters) > 0 {
		d.RaiseCondition("neighbour subscriptions", "the MQTT broker for device-to-device traffic refuses "+
			"subscriptions to "+
			observe.JoinNames(e.NeighborBrokerFilters), mqtt.RefusalRemedy)
	} else {
		d.ResolveCondition("neighbour subscriptions")
	}
}

var brokerSelfTest = observe.GaugeByLabel("broker_self_test",
	"Result of the self-test that sends the largest messages through the broker: 1 for the current result, 0 for the "+
		"others. Denied: blocked by access rules; swallowed: dropped silently; disconnected: connection closed.",
	"result", observe.NamesAsStrings(mqtt.SelfTestResults()))

// BrokerSelfTestEnded reports the result of a self-test of the broker, in which the program sends itself messages of
// the maximum size.
type BrokerSelfTestEnded struct{ mqtt.SelfTestReport }

// Describe implements observe.Event.
func (e BrokerSelfTestEnded) Describe(d *observe.EventDescription) {
	d.SelectGaugeState(brokerSelfTest, string(e.Result))
	if e.Result == mqtt.SelfTestPassed {
		d.Log(observe.Debug, "broker accepts the largest messages", "bytes", e.LargeMessageBytes)
		d.ResolveCondition("broker")
		return
	}
	d.Log(observe.Error, "broker test failed", "result", e.Result, "topic", e.Topic, "bytes",
		e.LargeMessageBytes)
	d.RaiseCondition("broker", e.Problem(), e.Remedy())
}

var storageOK = &observe.Metric{Name: "storage_ok", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
	InitialValue: 1,
	Help:         "Whether writes to the state folder succeed (1) or fail and are retried (0)."}

// StorageFailing reports that a write to the state folder has failed for the first time. The program retries the write
// and delays operations that depend on it.
type StorageFailing struct {
	Operation string // description of the write in the infinitive, such as "save the model"
	Err       error
}

// Describe implements observe.Event.
func (e StorageFailing) Describe(d *observe.EventDescription) {
	d.SetGauge(storageOK, 0)
	d.Log(observe.Error, "cannot write to the state folder", "operation", e.Operation, "err", e.Err)
	d.RaiseNotReadyCondition("storage", fmt.Sprintf("cannot %s: %v", e.Operation, e.Err),
		"make state_dir writable, and free some space; the write is retried until it succeeds")
}

// StorageRecovered reports that all failed writes have succeeded.
type StorageRecovered struct{}

// Describe implements observe.Event.
func (StorageRecovered) Describe(d *observe.EventDescription) {
	d.SetGauge(storageOK, 1)
	d.Log(observe.Info, "state folder is writable again")
	d.ResolveCondition("storage")
}

// Label values for the direction of a message.
const (
	DirectionReceived = "received"
	DirectionSent     = "sent"
)

// Label values for drop reasons that only the MQTT session can detect.
const (
	DropReasonOverflow  = "overflow"  // the receive queue was full
	DropReasonOversized = "oversized" // a received message was too large
	DropReasonUnsent    = "unsent"    // the connection was lost before a message was sent
)

// NewDroppedMessagesMetric returns the counter of dropped MQTT messages. The parameter reasons contains the program's
// own reasons for dropping a received message.
func NewDroppedMessagesMetric(reasons []string) *observe.Metric {
	series := [][]string{{DirectionSent, DropReasonUnsent}, {DirectionReceived, DropReasonOversized}}
	for _, reason := range reasons {
		series = append(series, []string{DirectionReceived, reason})
	}
	return &observe.Metric{Name: "mqtt_dropped_messages_total", LabelNames: []string{"direction", "reason"},
		InitialSeries: series,
		Help: "MQTT messages dropped, by reason. Overflow: full mailbox; oversized: more than 131,072 bytes; unsent: " +
			"connection lost before sending."}
}

// ClonesSeen counts how often an agent or the coordinator has detected two devices with the same identity.
var ClonesSeen = observe.Counter("clones_seen_total",
	"Number of times that two devices with the same identity were detected. The log names these devices.")
