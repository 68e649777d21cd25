package round

import (
	"fmt"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorMetrics contains the metrics that the events of the coordinator's machine update.
var CoordinatorMetrics = []*observe.Metric{
	coordinatorPhaseMetric, phaseDurationMetric,
	openedRoundMetric, openedAttemptMetric, answerShareMetric, estimatedAgentsMetric, sidelinedAgentsMetric,
	ModelVersion,
	eligibleAgentsMetric, eligibleHellosMetric, unfitAgentsMetric, departedAgentsMetric, extendedGatheringsMetric,
	sidelineCountMetric, earlyReadmissionsMetric, largeRowCountsMetric,
	joinedParticipantsMetric, declinedParticipantsMetric, replacedUploadersMetric,
	acceptedUpdatesMetric, acceptanceDelayMetric, updateNormMetric, acceptedLocalStepsMetric, savedUpdateBytesMetric,
	refusedUpdatesMetric,
	endedRoundCountMetric, roundDurationMetric, roundsClosedByDeadlineMetric, aggregatedUpdatesMetric,
	lastRoundTimeMetric,
	selectedParticipantsMetric, missingParticipantsMetric, lastRoundParticipantsMetric,
	rolloutResultsMetric, releasedVersionMetric, candidateVersionMetric, trialAgentsMetric, candidateErrorRatioMetric,
	scheduleWaitingMetric, agentsWithNewRowsMetric,
	runFinishedMetric, runEndReasonMetric, runRiskMetric, bestRunRiskMetric, bestRunVersionMetric,
	aggregationsSinceBestMetric, runTransferredBytesMetric,
	mixingDistanceMetric, endedEdgesMetric,
}

// Metrics that several events change.
var (
	eligibleAgentsMetric = observe.Gauge("agents_eligible",
		"Number of agents that are present, able to perform the task and eligible to be drawn for a round.")
	// ModelVersion is the metric of the newest model's version. Events of the coordinator's host update it too.
	ModelVersion = observe.OptionalGauge("model_version",
		"Version of the newest model, which is the number of aggregations that produced it.")
)

var roundDurationBuckets = []float64{0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600}

// AbandonReason is the reason for abandoning a round, used as a metric label.
type AbandonReason string

// The reasons for abandoning a round.
const (
	AbandonQuorumMissed      AbandonReason = "quorum" // the updates that have arrived or can still arrive are too few
	AbandonUnusableAggregate AbandonReason = "fold"   // the aggregate is not a usable model
	AbandonTooFewForRule     AbandonReason = "rule"   // the aggregation rule needs more updates than remain
	AbandonBaseModelLost     AbandonReason = "model"  // the base model is missing on disk
	AbandonSpoolDamaged      AbandonReason = "spool"  // an accepted update is missing or damaged on disk
	AbandonByOperator        AbandonReason = "asked"  // an operator abandoned the round
)

// AbandonReasons returns all reasons for abandoning a round, for use as metric labels.
func AbandonReasons() []AbandonReason {
	return []AbandonReason{AbandonQuorumMissed, AbandonUnusableAggregate, AbandonTooFewForRule, AbandonBaseModelLost,
		AbandonSpoolDamaged, AbandonByOperator}
}

// LeaveReason is the reason why an agent is no longer eligible, used as a metric label.
type LeaveReason string

// Reasons why an agent is no longer eligible.
const (
	LeftOffline        LeaveReason = "offline" // the agent reported that it goes offline
	LeftConnectionLost LeaveReason = "lost"    // the broker lost the agent's connection
	LeftSilent         LeaveReason = "silent"  // the agent did not answer an invitation
	// LeftRevoked means that the agent was removed from the list of agents, or that its entry now belongs to another
	// device.
	LeftRevoked LeaveReason = "revoked"
)

// LeaveReasons returns all reasons why an agent is no longer eligible, for use as metric labels.
func LeaveReasons() []LeaveReason {
	return []LeaveReason{LeftOffline, LeftConnectionLost, LeftSilent, LeftRevoked}
}

var largeRowCountsMetric = observe.Counter("agents_samples_large_total",
	"Times that an agent began to report more than five times the median number of rows, if updates are weighted by "+
		"rows.")

// RowCountsTooLarge is emitted when the set of agents that report more rows than RowLimit, five times the median, has
// changed. The set may be empty.
type RowCountsTooLarge struct {
	Round            wire.RoundID
	Agents           []wire.AgentID // agents above RowLimit, in id order
	RowLimit         uint64
	WeightsAreCapped bool // whether weights are computed with at most RowLimit rows (round.robust)
}

// Describe implements observe.Event. It raises no condition if the weights are capped.
func (e RowCountsTooLarge) Describe(d *observe.EventDescription) {
	const condition = "row counts"
	d.AddToCounter(largeRowCountsMetric, float64(len(e.Agents)))
	if len(e.Agents) > 0 {
		d.Log(observe.Warn, "agents report more than five times the median number of rows", "round", e.Round,
			"agents", e.Agents, "rows", e.RowLimit, "weights_capped", e.WeightsAreCapped)
	}
	if len(e.Agents) == 0 || e.WeightsAreCapped {
		d.ResolveCondition(condition)
		return
	}
	d.RaiseCondition(condition,
		fmt.Sprintf("some agents report more than five times the median number of rows and dominate the model: %s",
			observe.JoinNames(e.Agents)),
		"if these row counts are wrong, set round.robust or revoke the agents with `coordinator devices revoke ID`")
}
