package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// runStopReason returns the reason why the run is over, or "" if the run continues. A due statistics round takes
// precedence over the stopping rules, since agents need the column statistics to use the model.
func (c *CoordinatorMachine) runStopReason(now time.Time) stop.Reason {
	p := &c.record.Plan
	switch {
	case c.cfg.OperatorCommand == CommandStop:
		return stop.StoppedByOperator
	case c.cfg.MaxAggregations > 0 && p.BaseModelVersion >= wire.ModelVersion(c.cfg.MaxAggregations):
		return stop.MaxAggregationsReached
	case p.Kind == wire.KindStatistics:
		return ""
	}
	return c.record.StopState.StopReason(&c.cfg.Stop, now)
}

// runTimeLimitEndsAt returns the time at which the run's time limit expires; zero if no limit applies. During a round
// it returns zero, since a round in progress is completed.
func (c *CoordinatorMachine) runTimeLimitEndsAt() time.Time {
	if !c.isBetweenRounds() || c.record.Plan.Kind == wire.KindStatistics {
		return time.Time{}
	}
	return c.record.StopState.TimeLimitEndsAt(&c.cfg.Stop)
}

// isBetweenRounds reports whether the machine has started, no round is in progress, and the run continues.
func (c *CoordinatorMachine) isBetweenRounds() bool {
	return !c.phaseEnteredAt.IsZero() && (c.isInPhase(CoordinatorIdle) || c.isInPhase(CoordinatorGathering))
}

// recordMeasurements updates the stopping rules with the measurements of a new model, before its plan becomes current.
func (c *CoordinatorMachine) recordMeasurements(e *AggregationEnded) {
	s := &c.record.StopState
	switch {
	case !c.cfg.Stop.IsEnabled():
		return
	case c.record.Plan.Kind == wire.KindStatistics:
		s.NextRisksIncomparable = true
		return
	}
	m := &e.Measurements
	s.RecordMeasurements(&c.cfg.Stop, e.NextPlan.BaseModelVersion, stop.Measurements{HeldOutRisk: m.HeldOutRisk,
		R2: m.R2, Accuracy: m.Accuracy,
		MedianAgentRisk: m.MedianAgentRisk, AgentRisks: e.AgentRisks})
	c.reportEvent(StopProgressReported{c.cfg.Stop, *s})
}

// countTransferredBytes adds the bytes that a participant transfers when its state changes: the model when it joins,
// and the update when it is accepted.
func (c *CoordinatorMachine) countTransferredBytes(from, to participantState) {
	if !c.cfg.Stop.IsEnabled() {
		return
	}
	p := &c.record.Plan
	if from == stateInvited && (to == stateJoined || to == stateAccepted) {
		c.record.StopState.TransferredBytes += uint64(p.trainingBaseModel().Length)
	}
	if to == stateAccepted {
		c.record.StopState.TransferredBytes += uint64(p.UpdateBytes)
	}
}

// finishRun ends the run. It records the reason in the history of the last round. If that history was already written
// without the reason, finishRun writes it again.
func (c *CoordinatorMachine) finishRun(now time.Time, why stop.Reason) {
	late := c.record.RunStopReason != why && c.roundAwaitingDiscard == 0 && c.record.LastOutcome != nil
	c.record.RunStopReason, c.retryRoundAt, c.mixing.pendingParticipants = why, time.Time{}, nil
	c.enterPhase(now, CoordinatorFinished)
	c.saveJournalRecord(now)
	if late {
		c.emitEffect(WriteHistory{c.record.Run, *c.record.LastOutcome, why})
	}
	c.announcePhase(now, wire.PhaseFinished)
	c.reportEvent(RunFinished{c.record.Plan.BaseModelVersion, why})
}

var (
	runRiskMetric = observe.OptionalGauge("run_risk",
		"Last risk (mean loss) compared with round.stop: on held-out data, or the mean of the last 5 medians that "+
			"participants reported.")
	bestRunRiskMetric = observe.OptionalGauge("run_best_risk",
		"Lowest risk (mean loss) of the run so far, ignoring improvements below round.stop.improvement.")
	bestRunVersionMetric = observe.OptionalGauge("run_best_version",
		"Version of the model with the lowest risk (mean loss) of the run.")
	aggregationsSinceBestMetric = observe.OptionalGauge("run_aggregations_without_improvement",
		"Aggregations since the risk last improved; round.stop.patience limits this number.")
	runTransferredBytesMetric = observe.OptionalGauge("run_bytes",
		"Total bytes of the models that participants fetched and of the accepted updates; round.stop.bytes limits "+
			"this number.")
)

// StopProgressValue is the name of the status value *StopProgress.
const StopProgressValue = "stop progress"

// StopProgress is the progress of a run towards its stopping rules, for a status display.
type StopProgress struct {
	// start of the period for which duration and bytes are counted
	CountingStartedAt time.Time `json:"since"`
	MaxRunSeconds     float64   `json:"seconds,omitempty"` // maximum duration of the run; 0 means no limit
	UsedBytes         uint64    `json:"bytes"`
	MaxBytes          uint64    `json:"most_bytes,omitempty"` // maximum number of bytes; 0 means no limit
	// Target values that end the run; 0 means no target.
	TargetRisk     float64 `json:"target_risk,omitempty"`
	TargetR2       float64 `json:"target_r2,omitempty"`
	TargetAccuracy float64 `json:"target_accuracy,omitempty"`
	// Risks that the stopping rules have compared; nil and 0 before the first comparison.
	JudgedRisk       *float64          `json:"risk,omitempty"`
	BestRisk         *float64          `json:"best_risk,omitempty"`
	BestModelVersion wire.ModelVersion `json:"best_version,omitempty"`

	AggregationsWithoutImprovement int `json:"without_improvement"`
	// maximum of AggregationsWithoutImprovement; 0 means no limit
	PatienceAggregations int `json:"patience,omitempty"`
}

// StopProgressReported is emitted at startup and after each aggregation with the progress of the run towards its
// stopping rules.
type StopProgressReported struct {
	StopRules stop.Config
	stop.State
}

// Describe implements observe.Event.
func (e StopProgressReported) Describe(d *observe.EventDescription) {
	d.SetGauge(runTransferredBytesMetric, float64(e.TransferredBytes))
	r := &e.StopRules
	p := &StopProgress{CountingStartedAt: e.TimeLimitStartedAt, MaxRunSeconds: r.TimeLimit.Seconds(),
		UsedBytes: e.TransferredBytes, MaxBytes: uint64(r.ByteLimit), TargetRisk: r.TargetRisk, TargetR2: r.TargetR2,
		TargetAccuracy: r.TargetAccuracy, AggregationsWithoutImprovement: e.AggregationsSinceBest,
		PatienceAggregations: r.Patience}
	d.ShowStatusValue(StopProgressValue, p)
	if e.JudgedRiskCount > 0 {
		p.JudgedRisk, p.BestRisk = observe.FiniteOrNil(e.LatestRisk), observe.FiniteOrNil(e.BestRisk)
		p.BestModelVersion = e.BestVersion
		d.SetGauge(runRiskMetric, e.LatestRisk)
		d.SetGauge(bestRunRiskMetric, e.BestRisk)
		d.SetGauge(bestRunVersionMetric, float64(e.BestVersion))
		d.SetGauge(aggregationsSinceBestMetric, float64(e.AggregationsSinceBest))
	}
}

var (
	runFinishedMetric = observe.Gauge("run_finished",
		"Whether the run is finished (1) or not (0).")
	runEndReasonMetric = observe.GaugeByLabel("run_ended",
		"Reason for the end of the run: 1 for the reason, 0 for all others.",
		"reason", observe.NamesAsStrings(stop.AllReasons()))
)

// RunFinished is emitted when the run has ended.
type RunFinished struct {
	ModelVersion wire.ModelVersion
	Reason       stop.Reason
}

// Describe implements observe.Event.
func (e RunFinished) Describe(d *observe.EventDescription) {
	d.SetGauge(runFinishedMetric, 1)
	d.SelectGaugeState(runEndReasonMetric, string(e.Reason))
	d.SetGauge(ModelVersion, float64(e.ModelVersion))
	d.Log(observe.Info, "run finished", "version", e.ModelVersion, "reason", e.Reason,
		"to_continue", "coordinator task set KEY=VALUE")
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("run finished (%s) with model version %d", e.Reason,
		e.ModelVersion))
}
