package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fetchBaseModel provides the base model of a round: the model in use if it is the same, or else it is fetched.
func (a *Agent) fetchBaseModel(ref wire.BlobRef) {
	a.baseModelHash = ref.Hash
	if w := a.predict.ModelInUse(ref.Hash); w != nil {
		a.base = w
		a.stepRoundMachine(round.ModelFetched{Base: ref.Hash})
		return
	}
	if !a.fetch.Renew(ref, fetch.Model) {
		a.fetchModel(ref)
	}
}

// fetchModel fetches a base model. Training, prediction and evaluation share each model that arrives.
func (a *Agent) fetchModel(ref wire.BlobRef) {
	a.fetch.Fetch(ref, fetch.Model, func(b *fetch.Blob, err error) { a.receiveBaseModel(ref, b, err) })
}

// modelArrived gives a base model to evaluation and prediction, or the reason why it is not available.
func (a *Agent) modelArrived(hash wire.Digest, w []float32, err error) {
	if err == nil {
		a.evaluation.ModelArrived(hash, w)
	}
	a.predict.ModelArrived(hash, w, err)
}

// receiveBaseModel decodes a base model that has arrived, or reports that it is not available.
func (a *Agent) receiveBaseModel(ref wire.BlobRef, blob *fetch.Blob, err error) {
	if errors.Is(err, fetch.ErrCanceled) {
		a.predict.ModelFetchCanceled(ref.Hash)
		return
	}
	if err != nil {
		a.stepRoundMachine(round.ModelFetched{Base: ref.Hash, Failed: true})
		a.modelArrived(ref.Hash, nil, err)
		return
	}
	of := a.taskData.Announced() // of the announced task, whose model it is; its rows may not fit
	if ref.Hash == a.baseModelHash {
		of = a.taskData.Prepared().LocalTask
	}
	if of == nil || of.CompiledTask == nil {
		a.modelArrived(ref.Hash, nil, errors.New("the task is another one by now"))
		return
	}
	want := of.CompiledTask.Schema(wire.KindTraining).Len()
	a.core.Do(a.core.DataJobs, func() func() {
		w := make([]float32, ref.Length/4)
		err := blob.Read(func(at int, piece []byte) error {
			return wire.DecodeVector(w[at/4:(at+len(piece))/4], piece)
		})
		if err == nil && len(w) != want {
			err = errors.New("the model has another size than the task's")
		}
		return func() {
			if err != nil {
				a.cfg.Logger.Warn("a model that was fetched cannot be used", "hash", ref.Hash.TopicLevel(), "err", err)
			}
			if ref.Hash == a.baseModelHash { // else the round is over, or is another agent's
				a.base = w
				a.stepRoundMachine(round.ModelFetched{Base: ref.Hash, Failed: err != nil})
			}
			a.modelArrived(ref.Hash, w, err)
		}
	})
}

// startRoundTraining computes the update of a round beside the owner. Work that release or a
// stop of the agent cuts short is thrown away.
func (a *Agent) startRoundTraining(e round.Train) {
	if e.Announcement.Kind == wire.KindTraining {
		a.cfg.Observer.Observe(ModelFetched{Version: e.Announcement.BaseModelVersion,
			Bytes: int(e.Announcement.BaseModel.Length)})
	}
	p, base, perStep := a.taskData.Prepared().LimitTrainingRows(e.Samples), a.base, a.pace.PerStep()
	if a.cfg.StepTime > 0 {
		perStep = a.cfg.StepTime
	}
	if e.Announcement.Kind == wire.KindTraining {
		a.taskData.TrainingStarted(e.Position.Run, e.Position.Round, p)
	}
	sizing := p.CompiledTask.StepCountPolicy()
	steps, why := sizing.LocalSteps(perStep)
	share := 1.0
	for p := range part.Implementing[part.StepLimiter](a.parts) {
		share = min(share, p.StepShare())
	}
	steps, why = sizing.ReduceSteps(steps, why, share)
	ctx, cease := context.WithCancel(a.core.Loop.Context())
	a.cancelTraining = cease
	q := &updateRequest{a: a, ctx: ctx, cancelRound: cease, trainEffect: e, p: p, base: base, steps: steps,
		sizingReason: why,
		began:        a.core.Loop.Now(),
		sequence:     a.upload.Begin()}
	switch {
	case e.Announcement.Kind == wire.KindStatistics:
		q.computeStatistics()
	case p.CompiledTask.Task.Mixing.EndlessBlocks:
		a.answerFromEndlessBlock(q)
	default:
		q.trainFiniteBlock()
	}
}

// handleTrainedUpdate goes on with the update.
func (a *Agent) handleTrainedUpdate(e round.Train, u *part.Update, event Trained, err error) {
	if event.LocalSteps > 0 {
		a.pace.Observe(event.LocalSteps, event.LocalStepsDuration)
		event.StepTime = a.pace.PerStep()
		if a.cfg.StepTime > 0 {
			event.StepTime = a.cfg.StepTime
		}
		u.StepTime = event.StepTime.Seconds()
		a.cfg.Observer.Observe(event)
	}
	if err != nil {
		a.cfg.Observer.Observe(TrainingFailed{e.Position.Round, err})
		a.stepRoundMachine(round.Trained{Run: e.Position.Run, Round: e.Position.Round,
			FailureReason: declineReasonOf(err)})
		return
	}
	a.upload.Ready(u)
	a.stepRoundMachine(round.Trained{Run: e.Position.Run, Round: e.Position.Round, UpdateDigest: u.Payload.Hash,
		HasEdgeReport: len(u.EdgeMeasurements.Edges) > 0})
}

func declineReasonOf(err error) wire.DeclineReason {
	switch d := (*learner.DivergenceError)(nil); {
	case errors.As(err, &d):
		return wire.DeclineDiverged
	case errors.Is(err, task.ErrNoSteps), errors.Is(err, task.ErrStopped):
		return wire.DeclineNoTime
	}
	return wire.DeclineBadData
}

var (
	modelVersion = observe.OptionalGauge("model_version",
		"Version of the base model that was fetched last: the number of aggregations behind it.")
	modelBytes   = observe.OptionalGauge("model_bytes", "Size of the base model that was fetched last.")
	modelFetches = observe.Counter("model_fetches_total", "Base models that were fetched.")
)

// ModelFetched: the agent has the base model of a round.
type ModelFetched struct {
	Version wire.ModelVersion
	Bytes   int
}

// Describe implements observe.Event.
func (e ModelFetched) Describe(d *observe.Description) {
	d.Inc(modelFetches)
	d.Set(modelVersion, float64(e.Version))
	d.Set(modelBytes, float64(e.Bytes))
}

// The buckets of durations: a step takes microseconds on a server and seconds on the smallest device; training is cut
// off by a round's deadline.
var (
	stepBuckets     = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}
	trainingBuckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800}
)

var (
	localRiskBefore = observe.OptionalGauge("local_risk_before",
		"Risk of the base model on the local data, or on 4096 rows drawn of them, in the last round trained.")
	localRiskAfter = observe.OptionalGauge("local_risk_after",
		"Risk on the same rows after the local steps, in the last round trained.")
	baseModelScore = host.NewScoreMetrics("the base model of the last round trained")
	localSteps     = observe.OptionalGauge("local_steps", "Local steps E_k that were taken in the last round trained.")
	stepSeconds    = observe.OptionalGauge("step_seconds",
		"Time per local step, as estimated over the last rounds or declared; "+
			"it decides the number of local steps.")
	stepCountDecisions = observe.CounterByLabel("local_steps_decisions_total",
		"Rounds trained, by what decided the number of local steps: the time budget, a bound, or that no speed "+
			"was measured yet.",
		"reason", observe.StringerNames(learner.StepCountReasons()))
	stepDuration = observe.Histogram("step_duration_seconds", "Time per local step, as measured in each round.",
		stepBuckets)
	trainingDuration = observe.Histogram("training_duration_seconds", "Time that the local steps of a round took.",
		trainingBuckets)
	trainingFailures = observe.Counter("training_failures_total", "Rounds in which training gave no update.")
)

var (
	mixingFlows     = observe.Counter("mixing_flows_total", "Flows from neighbours that were applied.")
	mixingLateFlows = observe.Counter("mixing_flows_late_total",
		"Of these, those applied after the step of their snapshots.")
	mixingSkipped = observe.Counter("mixing_skipped_total",
		"Snapshots that were not issued on an edge, since the edge was behind.")
	mixingTimeouts = observe.Counter("mixing_waits_total",
		"Steps whose wait for neighbours ended at its deadline.")
	mixingUnreconciled = observe.Counter("mixing_unreconciled_total",
		"Edges on which, at the end of a round, one end may have applied a flow that the other did not.")
	mixingIgnored = observe.CounterByLabel("mixing_ignored_total",
		"Messages from the neighbours' broker that were not used, by reason.", "reason",
		observe.StringerNames(d2d.IgnoreReasons()))
	mixingDuration = observe.Histogram("mixing_duration_seconds",
		"Time that the block of a round took, local steps and mixing.", trainingBuckets)
)

// Trained: the agent has taken the local steps of a round.
type Trained struct {
	Round              wire.RoundID
	Version            wire.ModelVersion // of the base model
	LocalSteps         int
	Sizing             learner.StepCountReason
	StepTime           time.Duration // per local step, as measured or declared
	RiskBefore         float64
	RiskAfter          float64
	HeldOutScore       *learner.Score   // of the base model on the held-out rows; nil without held-out rows
	LocalStepsDuration time.Duration    // of all local steps
	LockWait           time.Duration    // wait for the training lock, while the device trained for other federations
	MixingStats        *d2d.MixingStats // of the block; nil if agents do not mix
	MixedFor           time.Duration    // duration of the block, local steps and mixing
}

// Describe implements observe.Event.
func (e Trained) Describe(d *observe.Description) {
	d.Set(localRiskBefore, e.RiskBefore)
	d.Set(localRiskAfter, e.RiskAfter)
	baseModelScore.Describe(d, e.HeldOutScore)
	d.Set(localSteps, float64(e.LocalSteps))
	d.Set(stepSeconds, e.StepTime.Seconds())
	d.Inc(stepCountDecisions, e.Sizing.String())
	d.Observe(trainingDuration, e.LocalStepsDuration.Seconds())
	if e.LocalSteps > 0 {
		d.Observe(stepDuration, e.LocalStepsDuration.Seconds()/float64(e.LocalSteps))
	}
	attributes := []any{"round", e.Round, "local_steps", e.LocalSteps, "because", e.Sizing, "step_time", e.StepTime,
		"risk_before", observe.Rounded(e.RiskBefore), "risk_after", observe.Rounded(e.RiskAfter),
		"took", e.LocalStepsDuration}
	if e.LockWait > 0 {
		attributes = append(attributes, "waited_for_others", e.LockWait)
	}
	d.Log(observe.Info, "trained", attributes...)
	if s := e.HeldOutScore; s != nil {
		attributes := []any{"round", e.Round, "version", e.Version, "rows", s.Samples, "risk", observe.Rounded(s.Risk)}
		d.Log(observe.Info, "base model scored on held-out rows", append(attributes, host.ScoreAttributes(s)...)...)
	}
	e.describeMixing(d)
}

func (e Trained) describeMixing(d *observe.Description) {
	s := e.MixingStats
	if s == nil {
		return
	}
	d.Add(mixingFlows, float64(s.Flows))
	d.Add(mixingLateFlows, float64(s.LateFlows))
	d.Add(mixingSkipped, float64(s.SkippedSnapshots))
	d.Add(mixingTimeouts, float64(s.TimedOutWaits))
	d.Add(mixingUnreconciled, float64(s.Unreconciled))
	for why, n := range s.IgnoredMessages {
		d.Add(mixingIgnored, float64(n), d2d.IgnoreReason(why).String())
	}
	d.Observe(mixingDuration, e.MixedFor.Seconds())
	d.Log(observe.Info, "mixed with neighbours", "round", e.Round, "flows", s.Flows, "late", s.LateFlows,
		"skipped", s.SkippedSnapshots, "unreconciled", s.Unreconciled, "took", e.MixedFor)
}

// TrainingFailed: training has given no update for a round.
type TrainingFailed struct {
	Round wire.RoundID
	Err   error
}

// Describe implements observe.Event.
func (e TrainingFailed) Describe(d *observe.Description) {
	d.Inc(trainingFailures)
	d.Log(observe.Error, "training failed", "round", e.Round, "err", e.Err)
}
