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

// Metrics are the metrics of the events of this package.
var Metrics = append([]*observe.Metric{
	damagedStateFiles, modelsAhead,
	statisticsRows, leftOutUpdates, clippedUpdates,
	modelBytes, updateSpreadNorm, aggregateNorm, modelStepNorm, aggregationDuration,
}, newestModelScore.List()...)

var leftOutUpdates = observe.CounterByLabel("updates_left_out_total",
	"Accepted updates excluded from the model. Not_finite, risk: the model would be unusable; norm: outweighs all "+
		"others; refuse_above: too long; rule: not chosen by the aggregation rule.",
	"reason", observe.NamesAsStrings(LeaveOutReasons()))

var (
	modelBytes       = observe.OptionalGauge("model_bytes", "Size of the newest model.")
	updateSpreadNorm = observe.OptionalGauge("last_round_update_spread",
		"Root mean square distance of the updates from their mean in the last published training round. With mixing, "+
			"the consensus distance.")
	aggregateNorm = observe.OptionalGauge("last_round_fold_norm",
		"Euclidean norm of the aggregate in the last published training round.")
	modelStepNorm = observe.OptionalGauge("last_round_step_norm",
		"Euclidean norm of the model's step in the last published training round, after the server optimiser.")
	aggregationDuration = observe.Histogram("fold_duration_seconds",
		"Duration of a round's aggregation, including the evaluation on held-out data.",
		[]float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120})
)

var newestModelScore = host.NewHeldOutScoreMetrics("the newest model")

// ModelReady: a new model is on disk.
type ModelReady struct {
	Round               wire.RoundID
	Version             wire.ModelVersion
	Hash                wire.Digest
	Bytes               int
	MeanReportedRisk    float64        // mean of the participants' risks at the base model; NaN when unknown
	MedianReportedRisk  float64        // median of the participants' risks at the base model; NaN when unknown
	HeldOutScore        *learner.Score // on the evaluation data; nil without any
	RiskAssessment      RiskAssessment
	UpdateSpread        float64 // of the updates in the model around their mean, as a Euclidean distance
	AggregateNorm       float64 // Euclidean norm of the aggregate; NaN if the run returned to an earlier model
	ModelStepNorm       float64 // Euclidean norm of the model's step that the server's optimiser made of the aggregate
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

// RepeatedLargeUpdates: the last updates of an agent were all more than 3 times as long as usual, so the device has
// unusual data or is dishonest. The event is reported at each aggregation from the third such update on, and once more
// when the agent's update is as long as usual again.
type RepeatedLargeUpdates struct {
	Round              wire.RoundID
	Agent              wire.AgentID
	ConsecutiveUpdates int               // consecutive long updates; 0 = the last update is as long as usual again
	SinceVersion       wire.ModelVersion // the model before the first of them
	Norm, UsualNorm    float64           // for the weight that the agent's steps carried
	ClippedNorm        float64           // the length with which the update is in the model; 0 = it was left out
}

// Describe implements observe.Event. It logs the third large update in a row, then the 4th, 8th, 16th and so on.
// The status page lists such agents: most of these devices are honest, so there is no condition.
func (e RepeatedLargeUpdates) Describe(d *observe.EventDescription) {
	n := e.ConsecutiveUpdates
	switch {
	case n == 0:
		d.Log(observe.Info, "updates are as large as usual again", "agent", e.Agent, "round", e.Round)
	case n == largeFolds || n&(n-1) == 0:
		d.Log(observe.Warn, "unusually large updates", "agent", e.Agent, "round", e.Round, "in_a_row", n,
			"norm", observe.RoundToFourDigits(e.Norm), "usual", observe.RoundToFourDigits(e.UsualNorm),
			"counted", observe.RoundToFourDigits(e.ClippedNorm),
			"undo", fmt.Sprintf("coordinator model rollback --to %d", e.SinceVersion))
	}
}

// ModelRejectedCondition is the name of the condition that a model was rejected. The status page ends it after some
// versions, since no single event shows that the run has recovered.
const ModelRejectedCondition = "rejected model"

// ModelRejected: the participants report that a model has diverged. The run continues from an earlier model, and the
// agents that are held responsible sit out.
type ModelRejected struct {
	Round              wire.RoundID
	Version            wire.ModelVersion
	EarlierVersion     wire.ModelVersion // the model that the run returns to
	NextVersion        wire.ModelVersion // the new version of the earlier model
	MedianReportedRisk float64           // median of the reported risks; 0 if fewer than 3 agents reported one
	SuspectAgents      []wire.AgentID
}

// Describe implements observe.Event.
func (e ModelRejected) Describe(d *observe.EventDescription) {
	d.AddToCounter(leftOutUpdates, float64(len(e.SuspectAgents)), string(LeftOutRisk))
	d.Log(observe.Warn, "model rejected, because it has diverged", "version", e.Version,
		"continues_from", e.EarlierVersion, "as", e.NextVersion,
		"median_risk", observe.RoundToFourDigits(e.MedianReportedRisk), "agents", e.SuspectAgents, "round", e.Round)
	d.RaiseCondition(ModelRejectedCondition,
		fmt.Sprintf("model %d had diverged and was rejected; the run continues from model "+
			"%d as version %d; the largest updates in the rejected model are from: %s", e.Version, e.EarlierVersion,
			e.NextVersion, observe.JoinNames(e.SuspectAgents)),
		"check these devices, or lower task.step_size if they are honest; `coordinator model rollback --to VERSION` "+
			"returns to an earlier model")
}

// UpdatesExcludedByRule: round.aggregation.rule made the model of a round without these updates, as it does in each
// round.
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

// roundMeasurements returns the fields that the history keeps.
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
