package coordinator

import (
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// Metrics are the metrics of the coordinator's events.
var Metrics = slices.Concat([]*observe.Metric{
	DroppedMessages, receivedReports,
	enrolledAgents, coordinatorEpoch, aggregationRule, serverOptimizer,
	foreignAnnouncements, aheadAgents,
	evaluatedVersion, evaluatingAgents, evaluatedRows, evaluatedRisk, evaluatedR2, evaluatedAccuracy, evaluatedF1,
	evaluatedAgentRisk, evaluatedAgentAccuracy, evaluatedClassF1, evaluatedResiduals,
	meshAgents, meshEdges, meshParts, meshEigenvalue, meshEigenvalueRatio,
	receivingTransfers, queuedTransfers, bufferedTransferBytes,
}, aggregation.Metrics, publish.Metrics, cleanup.Metrics)

// Metrics that several events change, or that are not only changed by events.
var (
	// DroppedMessages counts the messages that the coordinator has not used.
	DroppedMessages = host.DroppedMessages(observe.Strings(devices.DropReasons()))
)
