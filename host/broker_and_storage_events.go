package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// Metrics are the metrics of the events below.
var Metrics = []*observe.Metric{brokerConnected, brokerReconnects, refusedSubscriptions, brokerSelfTest, storageOK,
	ClonesSeen}

var (
	brokerConnected = observe.Gauge("broker_connected",
		"Whether the program is connected to the broker (1) or not (0).")
	brokerReconnects = &observe.Metric{Name: "broker_reconnects_total",
		Help:          "Reconnections to the broker since the process started.",
		InitialSeries: observe.UnlabeledSeries, SkipsFirstAdd: true}
)

// BrokerLinkChanged: the connection to the broker was made, was lost, or could not be made.
type BrokerLinkChanged struct {
	IsConnected bool
	Err         error     // why it is down
	ReconnectAt time.Time // an agent stays disconnected by plan until then; zero = it does not
}

// Describe implements observe.Event. The MQTT session logs the state of the connection itself.
func (e BrokerLinkChanged) Describe(d *observe.EventDescription) {
	d.SetBoolGauge(brokerConnected, e.IsConnected)
	switch {
	case e.IsConnected:
		d.IncCounter(brokerReconnects)
		d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
	case !e.ReconnectAt.IsZero():
		d.ShowStatusValue(observe.ConnectionStatus,
			"disconnected by plan until "+e.ReconnectAt.Local().Format(time.DateTime))
	default:
		d.ShowStatusValue(observe.ConnectionStatus, fmt.Sprintf("not connected to the broker: %v", e.Err))
	}
}

var refusedSubscriptions = observe.Gauge("broker_subscriptions_refused",
	"Number of subscriptions that the broker currently refuses. Each is retried within a minute.")

// RefusedSubscriptionsChanged: the list of the subscriptions that the broker refuses has changed. The program tries
// them again.
type RefusedSubscriptionsChanged struct {
	Filters               []string
	NeighborBrokerFilters []string // refused by the broker of the neighbours, if it is another one
}

// Describe implements observe.Event. An agent is ready without its neighbours.
func (e RefusedSubscriptionsChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(refusedSubscriptions, float64(len(e.Filters)+len(e.NeighborBrokerFilters)))
	if len(e.Filters)+len(e.NeighborBrokerFilters) == 0 {
		d.Log(observe.Info, "broker accepts all subscriptions again")
	} else {
		d.Log(observe.Error, "broker refuses subscriptions",
			"topics", slices.Concat(e.Filters, e.NeighborBrokerFilters))
	}
	if len(e.Filters) > 0 {
		d.RaiseNotReadyCondition("subscriptions", "the broker refuses "+observe.JoinNames(e.Filters),
			mqtt.RefusalRemedy)
	} else {
		d.ResolveCondition("subscriptions")
	}
	if len(e.NeighborBrokerFilters) > 0 {
		d.RaiseCondition("neighbour subscriptions", "the broker of the neighbours refuses "+
			observe.JoinNames(e.NeighborBrokerFilters), mqtt.RefusalRemedy)
	} else {
		d.ResolveCondition("neighbour subscriptions")
	}
}

var brokerSelfTest = observe.GaugeByLabel("broker_self_test",
	"Result of the test with the largest messages: 1 for the result, 0 for the others. Denied: access rules; "+
		"swallowed: dropped silently; disconnected: connection closed.",
	"result", observe.NamesAsStrings(mqtt.SelfTestResults()))

// BrokerSelfTestEnded: the test of whether the broker carries the largest messages has ended.
type BrokerSelfTestEnded struct{ mqtt.SelfTestReport }

// Describe implements observe.Event.
func (e BrokerSelfTestEnded) Describe(d *observe.EventDescription) {
	d.SelectGaugeState(brokerSelfTest, string(e.Result))
	if e.Result == mqtt.SelfTestPassed {
		d.Log(observe.Debug, "broker carries the largest messages", "bytes", e.LargeMessageBytes)
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

// StorageFailing: a write to the state folder has begun to fail. It is tried again, and nothing that needs it continues
// meanwhile.
type StorageFailing struct {
	Operation string // an infinitive, such as "save the model"
	Err       error
}

// Describe implements observe.Event.
func (e StorageFailing) Describe(d *observe.EventDescription) {
	d.SetGauge(storageOK, 0)
	d.Log(observe.Error, "cannot write to the state folder", "operation", e.Operation, "err", e.Err)
	d.RaiseNotReadyCondition("storage", fmt.Sprintf("cannot %s: %v", e.Operation, e.Err),
		"make state_dir writable, with free space: the write is tried again until it succeeds")
}

// StorageRecovered: the last write that failed has succeeded.
type StorageRecovered struct{}

// Describe implements observe.Event.
func (StorageRecovered) Describe(d *observe.EventDescription) {
	d.SetGauge(storageOK, 1)
	d.Log(observe.Info, "state folder is writable again")
	d.ResolveCondition("storage")
}

// The directions of a message, as label values.
const (
	DirectionReceived = "received"
	DirectionSent     = "sent"
)

// The reasons for dropping a message that only the session knows, as label values.
const (
	DropReasonOverflow  = "overflow"  // the mailbox was full; both hosts have it among their own reasons
	DropReasonOversized = "oversized" // a received message
	DropReasonUnsent    = "unsent"    // a sent message
)

// NewDroppedMessagesMetric returns the metric of messages that a program has not used. reasons are the program's own
// reasons for dropping a received message.
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

// ClonesSeen counts the clones that an agent, or the coordinator, has detected.
var ClonesSeen = observe.Counter("clones_seen_total",
	"Detections of two devices with one identity. The log names them.")
