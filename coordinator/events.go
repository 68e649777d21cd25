package coordinator

import (
	"slices"

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
	damagedStateFiles, modelsAhead,
	statisticsRows, leftOutUpdates, clippedUpdates,
	modelBytes, updateSpreadNorm, aggregateNorm, modelStepNorm, aggregationDuration,
	evaluatedVersion, evaluatingAgents, evaluatedRows, evaluatedRisk, evaluatedR2, evaluatedAccuracy, evaluatedF1,
	evaluatedAgentRisk, evaluatedAgentAccuracy, evaluatedClassF1, evaluatedResiduals,
	meshAgents, meshEdges, meshParts, meshEigenvalue, meshEigenvalueRatio,
	receivingTransfers, queuedTransfers, bufferedTransferBytes,
}, newestModelScore.List(), publish.Metrics, cleanup.Metrics)

// Metrics that several events change, or that are not only changed by events.
var (
	// DroppedMessages counts the messages that the coordinator has not used.
	DroppedMessages = host.DroppedMessages(observe.Strings(devices.DropReasons()))

	leftOutUpdates = observe.CounterByLabel("updates_left_out_total",
		"Accepted updates that the model was made without, or that no model could be made with: it would not "+
			"have been finite, its risk would have exploded on held-out data or at the next participants, one "+
			"norm outweighs all others, or is above refuse_above; or the rule has chosen others, as krum does in "+
			"each round.",
		"reason", observe.Strings(LeaveOutReasons()))
)

// LeaveOutReason is the reason why a model was made without an update. It is a metric's label.
type LeaveOutReason string

// The reasons for leaving an update out.
const (
	LeftOutNotFinite LeaveOutReason = "not_finite" // the model would not have been finite
	// LeftOutRisk: the model's risk on held-out data would have been over 10 times the worst of the last 20 rounds.
	LeftOutRisk LeaveOutReason = "risk"
	// LeftOutNorm: the update outweighs all others together, and the model is no worse without it.
	LeftOutNorm LeaveOutReason = "norm"
	// LeftOutAbove: the update is longer than round.aggregation.refuse_above allows.
	LeftOutAbove LeaveOutReason = "refuse_above"
	// LeftOutRule: round.aggregation.rule has chosen others, as it does in each round. See UpdatesExcludedByRule.
	LeftOutRule LeaveOutReason = "rule"
)

// LeaveOutReasons returns all reasons, for closed label sets.
func LeaveOutReasons() []LeaveOutReason {
	return []LeaveOutReason{LeftOutNotFinite, LeftOutRisk, LeftOutNorm, LeftOutAbove, LeftOutRule}
}

// ClipReason is the bound that an update exceeds. It is a metric's label.
type ClipReason string

// The bounds, by their keys in round.aggregation.
const (
	ClippedNorm   ClipReason = "clip"
	ClippedAbove  ClipReason = "clip_above"
	ClippedRadius ClipReason = "radius" // of the distance from the last aggregate
)

// ClipReasons returns all reasons, for closed label sets.
func ClipReasons() []ClipReason { return []ClipReason{ClippedNorm, ClippedAbove, ClippedRadius} }

// StateFile names a file of the state folder. It is a metric's label.
type StateFile string

// The files that can be repaired when the coordinator starts.
const (
	StateTask  StateFile = "task"
	StateModel StateFile = "model"
)

// StateFiles returns all files, for closed label sets.
func StateFiles() []StateFile { return []StateFile{StateTask, StateModel} }
