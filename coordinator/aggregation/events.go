package aggregation

import (
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics lists the metrics of the events in this package.
var Metrics = append([]*observe.Metric{
	damagedStateFiles, modelsAhead,
	statisticsRows, leftOutUpdates, clippedUpdates,
	modelBytes, updateSpreadNorm, aggregateNorm, modelStepNorm, aggregationDuration,
}, newestModelScore.List()...)

var leftOutUpdates = observe.CounterByLabel("updates_left_out_total",
	"Accepted updates excluded from the model, by reason: not_finite and risk (would make the model unusable), norm "+
		"(outweighs all other updates), refuse_above (exceeds the norm limit), rule (not chosen by the aggregation "+
		"rule).",
	"reason", observe.NamesAsStrings(LeaveOutReasons()))

var (
	modelBytes       = observe.OptionalGauge("model_bytes", "Size of the newest model.")
	updateSpreadNorm = observe.OptionalGauge("last_round_update_spread",
		"Root mean square distance of the updates from their mean in the last published training round. If agents "+
			"exchange parameters with neighbours, this is the consensus distance.")
	aggregateNorm = observe.OptionalGauge("last_round_fold_norm",
		"Euclidean norm of the aggregate in the last published training round.")
	modelStepNorm = observe.OptionalGauge("last_round_step_norm",
		"Euclidean norm of the model's step in the last published training round, after the server optimiser.")
	aggregationDuration = observe.Histogram("fold_duration_seconds",
		"Duration of a round's aggregation, including the evaluation on held-out data.",
		[]float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120})
)

var newestModelScore = host.NewHeldOutScoreMetrics("the newest model")

// ModelReady reports that a new model was stored on disk.
type ModelReady struct {
	Round              wire.RoundID
	Version            wire.ModelVersion
	Hash               wire.Digest
	Bytes              int
	MeanReportedRisk   float64        // mean of the participants' risks at the base model; NaN if unknown
	MedianReportedRisk float64        // median of the participants' risks at the base model; NaN if unknown
	HeldOutScore       *learner.Score // score on the held-out data; nil without such data
	RiskAssessment     RiskAssessment
	UpdateSpread       float64 // root mean square distance of the updates from their mean
	AggregateNorm      float64 // Euclidean norm of the aggregate; NaN if the run returned to an earlier model
	// Euclidean norm of the server optimiser's step; NaN if the run returned to an earlier model
	ModelStepNorm       float64
	AggregationDuration time.Duration
}

// Describe implements observe.Event.
func (e ModelReady) Describe(d *observe.EventDescription) {
	d.SetGauge(round.ModelVersion, float64(e.Version))
	d.SetGauge(modelBytes, float64(e.Bytes))
	d.SetGauge(updateSpreadNorm, e.UpdateSpread)
	d.SetGauge(aggregateNorm, e.AggregateNorm)
	d.SetGauge(modelStepNorm, e.ModelStepNorm)
	if !math.IsNaN(e.AggregateNorm) {
		d.ObserveHistogram(aggregationDuration, e.AggregationDuration.Seconds())
	}
	newestModelScore.Describe(d, e.HeldOutScore)
	attributes := []any{"version", e.Version, "hash", e.Hash.TopicLevel()}
	if !math.IsNaN(e.MeanReportedRisk) {
		attributes = append(attributes, "risk", observe.RoundToFourDigits(e.MeanReportedRisk))
	}
	d.Log(observe.Info, "model ready", append(attributes, host.ScoreLogAttributes(e.HeldOutScore)...)...)
	e.RiskAssessment.describeRiskCondition(d, e.Version)
}

// RepeatedLargeUpdates is emitted for an agent that sent at least three consecutive updates with more than 3 times the
// usual norm. It is emitted for each such update, and once more after an update of usual norm. The device has unusual
// data or is dishonest.
type RepeatedLargeUpdates struct {
	Round              wire.RoundID
	Agent              wire.AgentID
	ConsecutiveUpdates int               // number of consecutive large updates; 0 after a usual update
	SinceVersion       wire.ModelVersion // version of the model before the first large update
	// Norm is the norm of the latest update and UsualNorm the usual norm of updates. Each is divided by the step weight
	// (the factor on the agent's local step size).
	Norm, UsualNorm float64
	ClippedNorm     float64 // norm of the update after clipping; 0 if it was left out
}

// Describe implements observe.Event. It logs the third large update in a row, then the 4th, 8th, 16th and so on. It
// raises no condition, because most such devices are honest; the status page lists them.
func (e RepeatedLargeUpdates) Describe(d *observe.EventDescription) {
	n := e.ConsecutiveUpdates
	switch {
	case n == 0:
		d.Log(observe.Info, "updates of the agent have a normal size again", "agent", e.Agent, "round", e.Round)
	case n == largeFolds || n&(n-1) == 0:
		d.Log(observe.Warn, "unusually large updates", "agent", e.Agent, "round", e.Round, "consecutive", n,
			"norm", observe.RoundToFourDigits(e.Norm), "usual", observe.RoundToFourDigits(e.UsualNorm),
			"clipped_norm", observe.RoundToFourDigits(e.ClippedNorm),
			"undo", fmt.Sprintf("coordinator model rollback --to %d", e.SinceVersion))
	}
}

// ModelRejectedCondition is the name of the condition "a model was rejected". The status page resolves it after several
// versions, since no single event shows that the run has recovered.
const ModelRejectedCondition = "rejected model"

// ModelRejected reports that a model diverged according to its participants. The run continues from an earlier model,
// and the suspected agents are suspended.
type ModelRejected struct {
	Round              wire.RoundID
	Version            wire.ModelVersion
	EarlierVersion     wire.ModelVersion // version of the earlier model from which the run continues
	NextVersion        wire.ModelVersion // version number under which the run continues with the earlier model
	MedianReportedRisk float64           // median of the reported risks; 0 if fewer than 3 agents reported a risk
	SuspectAgents      []wire.AgentID
}

// Describe implements observe.Event.
func (e ModelRejected) Describe(d *observe.EventDescription) {
	d.AddToCounter(leftOutUpdates, float64(len(e.SuspectAgents)), string(LeftOutRisk))
	d.Log(observe.Warn, "model rejected because it has diverged", "version", e.Version,
		"continues_from", e.EarlierVersion, "next_version", e.NextVersion,
		"median_risk", observe.RoundToFourDigits(e.MedianReportedRisk), "agents", e.SuspectAgents, "round", e.Round)
	d.RaiseCondition(ModelRejectedCondition,
		fmt.Sprintf("model %d diverged and was rejected; the run continues from model %d as version %d; these agents "+
			"sent the largest updates: %s", e.Version, e.EarlierVersion,
			e.NextVersion, observe.JoinNames(e.SuspectAgents)),
		"check these devices; if their data is valid, lower task.step_size; to return to an earlier model, "+
			"run `coordinator model rollback --to VERSION`")
}

// UpdatesExcludedByRule reports the updates that the aggregation rule excluded in a round, as rules such as krum do
// every round.
type UpdatesExcludedByRule struct {
	Round  wire.RoundID
	Rule   string
	Agents []wire.AgentID
}

// Describe implements observe.Event.
func (e UpdatesExcludedByRule) Describe(d *observe.EventDescription) {
	d.AddToCounter(leftOutUpdates, float64(len(e.Agents)), string(LeftOutRule))
	d.Log(observe.Info, "updates excluded by the aggregation rule", "round", e.Round, "rule", e.Rule,
		"agents", e.Agents)
}

// roundMeasurements returns the measurements for the history of the run.
func (m *ModelReady) roundMeasurements() round.RoundMeasurements {
	r := round.RoundMeasurements{MeanAgentRisk: observe.FiniteOrNil(m.MeanReportedRisk),
		MedianAgentRisk: observe.FiniteOrNil(m.MedianReportedRisk)}
	if m.HeldOutScore != nil {
		r.R2, r.Accuracy, r.HeldOutRisk = observe.FiniteOrNil(m.HeldOutScore.R2),
			observe.FiniteOrNil(m.HeldOutScore.Accuracy),
			observe.FiniteOrNil(m.HeldOutScore.Risk)
	}
	return r
}

// LeaveOutReason is the reason for leaving an update out of a model. It is used as a metric label.
type LeaveOutReason string

// Reasons for leaving an update out.
const (
	// LeftOutNotFinite means that the model would contain NaN or infinity.
	LeftOutNotFinite LeaveOutReason = "not_finite"
	// LeftOutRisk means that the held-out risk would exceed 10 times the highest risk of the last 20 rounds.
	LeftOutRisk LeaveOutReason = "risk"
	// LeftOutNorm means that the update outweighs all others together and the model is no worse without it.
	LeftOutNorm LeaveOutReason = "norm"
	// LeftOutAbove means that the norm of the update exceeds round.aggregation.refuse_above.
	LeftOutAbove LeaveOutReason = "refuse_above"
	// LeftOutRule means that the aggregation rule selected other updates. See UpdatesExcludedByRule.
	LeftOutRule LeaveOutReason = "rule"
)

// LeaveOutReasons returns all reasons for leaving an update out, for use as metric labels.
func LeaveOutReasons() []LeaveOutReason {
	return []LeaveOutReason{LeftOutNotFinite, LeftOutRisk, LeftOutNorm, LeftOutAbove, LeftOutRule}
}

// ClipReason is the bound that a clipped update exceeded. It is used as a metric label.
type ClipReason string

// Reasons for clipping, named after the keys of the limits in round.aggregation.
const (
	ClippedNorm   ClipReason = "clip"
	ClippedAbove  ClipReason = "clip_above"
	ClippedRadius ClipReason = "radius" // bound on the distance from the last aggregate
)

// ClipReasons returns all reasons for clipping an update, for use as metric labels.
func ClipReasons() []ClipReason { return []ClipReason{ClippedNorm, ClippedAbove, ClippedRadius} }
