package training

import (
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics lists the metrics that the events of this package update.
var Metrics = append([]*observe.Metric{
	localRiskBefore, localRiskAfter, localSteps, stepSeconds, stepCountDecisions, stepDuration, trainingDuration,
	trainingFailures,
	mixingFlows, mixingLateFlows, mixingSkipped, mixingTimeouts, mixingUnreconciled, mixingIgnored, mixingDuration,
	trainingWaits, trainingWaitSeconds,
	begunBlocks,
}, baseModelScore.List()...)

// Histogram buckets for durations in seconds. A local step takes microseconds on a server and seconds on the smallest
// device, and the round's deadline limits the training time.
var (
	stepBuckets     = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}
	trainingBuckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800}
)

var (
	localRiskBefore = observe.OptionalGauge("local_risk_before",
		"Risk (mean loss) of the base model on at most 4096 local rows in the last round trained.")
	localRiskAfter = observe.OptionalGauge("local_risk_after",
		"Risk (mean loss) on the same rows as agentd_local_risk_before, after the local steps.")
	baseModelScore = host.NewHeldOutScoreMetrics("the base model of the last round trained")
	localSteps     = observe.OptionalGauge("local_steps", "Number of local steps E_k in the last round trained.")
	stepSeconds    = observe.OptionalGauge("step_seconds",
		"Estimated or configured duration of a local step, from which the number of local steps is computed.")
	stepCountDecisions = observe.CounterByLabel("local_steps_decisions_total",
		"Rounds trained, by the reason for the number of local steps.",
		"reason", observe.StringerNames(learner.StepCountReasons()))
	stepDuration = observe.Histogram("step_duration_seconds", "Duration of a local step, measured once per round.",
		stepBuckets)
	trainingDuration = observe.Histogram("training_duration_seconds", "Duration of the local steps of a round.",
		trainingBuckets)
	trainingFailures = observe.Counter("training_failures_total", "Rounds in which training produced no update.")
)

var (
	mixingFlows = observe.Counter("mixing_flows_total",
		"Parameter differences (flows) received from neighbours and applied.")
	mixingLateFlows = observe.Counter("mixing_flows_late_total",
		"Parameter differences (flows) from neighbours that arrived late and were applied in a later local step.")
	mixingSkipped = observe.Counter("mixing_skipped_total",
		"Parameter snapshots not sent to a neighbour because the previous exchange with this neighbour was not "+
			"complete.")
	mixingTimeouts = observe.Counter("mixing_waits_total",
		"Local steps at which the wait for neighbours timed out.")
	mixingUnreconciled = observe.Counter("mixing_unreconciled_total",
		"Links to neighbours on which, after a round, possibly only one side has applied a parameter difference "+
			"(flow).")
	mixingIgnored = observe.CounterByLabel("mixing_ignored_total",
		"Ignored messages from the MQTT broker for device-to-device traffic, by reason.", "reason",
		observe.StringerNames(d2d.IgnoreReasons()))
	mixingDuration = observe.Histogram("mixing_duration_seconds",
		"Duration of the local steps of a round, including the parameter exchange with neighbours.", trainingBuckets)
)

// LocalTrainingFinished reports that the agent has taken the local steps of a round.
type LocalTrainingFinished struct {
	Round              wire.RoundID
	Version            wire.ModelVersion // version of the base model from which the training started
	LocalSteps         int
	StepCountReason    learner.StepCountReason
	StepTime           time.Duration // time per local step, measured or declared
	RiskBefore         float64
	RiskAfter          float64
	HeldOutScore       *learner.Score // score of the base model on the held-out rows; nil without such rows
	LocalStepsDuration time.Duration  // total duration of all local steps
	// time spent waiting for the training lock while the device trained for other federations
	LockWait      time.Duration
	MixingStats   *d2d.MixingStats // mixing statistics of the block; nil without mixing
	BlockDuration time.Duration    // total duration of the block, including mixing
}

// Describe implements observe.Event.
func (e LocalTrainingFinished) Describe(d *observe.EventDescription) {
	d.SetGauge(localRiskBefore, e.RiskBefore)
	d.SetGauge(localRiskAfter, e.RiskAfter)
	baseModelScore.Describe(d, e.HeldOutScore)
	d.SetGauge(localSteps, float64(e.LocalSteps))
	d.SetGauge(stepSeconds, e.StepTime.Seconds())
	d.IncCounter(stepCountDecisions, e.StepCountReason.String())
	d.ObserveHistogram(trainingDuration, e.LocalStepsDuration.Seconds())
	if e.LocalSteps > 0 {
		d.ObserveHistogram(stepDuration, e.LocalStepsDuration.Seconds()/float64(e.LocalSteps))
	}
	attributes := []any{"round", e.Round, "local_steps", e.LocalSteps, "steps_limited_by", e.StepCountReason,
		"step_time",
		e.StepTime,
		"risk_before", observe.RoundToFourDigits(e.RiskBefore), "risk_after", observe.RoundToFourDigits(e.RiskAfter),
		"took", e.LocalStepsDuration}
	if e.LockWait > 0 {
		attributes = append(attributes, "lock_wait", e.LockWait)
	}
	d.Log(observe.Info, "local training finished", attributes...)
	if s := e.HeldOutScore; s != nil {
		attributes := []any{"round", e.Round, "version", e.Version, "rows", s.Samples, "risk",
			observe.RoundToFourDigits(s.Risk)}
		d.Log(observe.Info, "base model evaluated on held-out rows", append(attributes,
			host.ScoreLogAttributes(s)...)...)
	}
	e.describeMixing(d)
}

func (e LocalTrainingFinished) describeMixing(d *observe.EventDescription) {
	s := e.MixingStats
	if s == nil {
		return
	}
	d.AddToCounter(mixingFlows, float64(s.AppliedFlows))
	d.AddToCounter(mixingLateFlows, float64(s.LateFlows))
	d.AddToCounter(mixingSkipped, float64(s.SkippedSnapshots))
	d.AddToCounter(mixingTimeouts, float64(s.TimedOutWaits))
	d.AddToCounter(mixingUnreconciled, float64(s.UnreconciledEdges))
	for why, n := range s.IgnoredMessagesByReason {
		d.AddToCounter(mixingIgnored, float64(n), d2d.IgnoreReason(why).String())
	}
	d.ObserveHistogram(mixingDuration, e.BlockDuration.Seconds())
	d.Log(observe.Info, "mixed with neighbours", "round", e.Round, "flows", s.AppliedFlows, "late",
		s.LateFlows,
		"skipped", s.SkippedSnapshots, "unreconciled", s.UnreconciledEdges, "took", e.BlockDuration)
}

// LocalTrainingFailed reports that training for a round failed and produced no update.
type LocalTrainingFailed struct {
	Round wire.RoundID
	Err   error
}

// Describe implements observe.Event.
func (e LocalTrainingFailed) Describe(d *observe.EventDescription) {
	d.IncCounter(trainingFailures)
	d.Log(observe.Error, "training failed", "round", e.Round, "err", e.Err)
}
