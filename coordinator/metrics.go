package coordinator

import (
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics lists the metrics of the coordinator's events.
var Metrics = slices.Concat([]*observe.Metric{
	DroppedMessages, receivedReports,
	enrolledAgents, coordinatorEpoch, aggregationRule, serverOptimizer,
	evaluatedVersion, evaluatingAgents, evaluatedRows, evaluatedRisk, evaluatedR2, evaluatedAccuracy, evaluatedF1,
	evaluatedAgentRisk, evaluatedAgentAccuracy, evaluatedClassF1, evaluatedResiduals,
}, aggregation.Metrics, duplicate.Metrics, publish.Metrics, uploads.Metrics, meshplan.Metrics, cleanup.Metrics)

// Metrics that several events or packages update.
var (
	// DroppedMessages counts received messages that the coordinator dropped.
	DroppedMessages = host.NewDroppedMessagesMetric(observe.NamesAsStrings(devices.DropReasons()))
)

var (
	coordinatorEpoch = observe.OptionalGauge("epoch",
		"Epoch of this coordinator, which increases with each restore or takeover. Absent until the broker has "+
			"replied.")
	aggregationRule = observe.GaugeByLabel("aggregation_rule",
		"Aggregation rule of the run: 1 for the configured rule, 0 for all others.",
		"rule", rule.Names())
	serverOptimizer = observe.GaugeByLabel("server_optimizer",
		"Server optimiser of the run: 1 for the configured optimiser, 0 for all others.",
		"name", optimizer.Names())
)

// RoundMachineStarted reports that the round machine started, because the broker retains no later announcement.
type RoundMachineStarted struct {
	Epoch wire.Epoch
	// EpochRaised is true if the epoch was raised at this start. Agents then follow this coordinator even if another
	// coordinator has announced a later round.
	EpochRaised bool
	// AggregationRule and ServerOptimizer are the values of round.aggregation.rule and round.server_optimizer.
	AggregationRule, ServerOptimizer string
}

// Describe implements observe.Event.
func (e RoundMachineStarted) Describe(d *observe.EventDescription) {
	d.SetGauge(coordinatorEpoch, float64(e.Epoch))
	d.SelectGaugeState(aggregationRule, e.AggregationRule)
	d.SelectGaugeState(serverOptimizer, e.ServerOptimizer)
	d.Log(observe.Info, "rounds started", "rule", e.AggregationRule, "server_optimizer", e.ServerOptimizer)
	if e.EpochRaised {
		d.Log(observe.Info, "epoch raised", "epoch", e.Epoch)
	}
}
