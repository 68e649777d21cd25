// Package predict manages the models with which the device makes predictions. It decides whether a new model is put
// into use, follows the coordinator's rollouts, and makes forecasts from the device's rows.
package predict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures the models for predictions.
type Config struct {
	MaxKeptModels int // number of models kept in the state folder, at least 1
	// MinModelChangeInterval is the minimum time between two new models. It does not delay the first model of a run, a
	// model whose version is at least twice the last version, or the result of a run.
	MinModelChangeInterval time.Duration
	// MaxRiskIncrease limits the risk of a new model on the held-out rows, relative to the model in use. A model is
	// refused if its risk is more than 1+MaxRiskIncrease times as large.
	MaxRiskIncrease float64
	// PublishForecast, if set, publishes a forecast for a row of the device. After mqtt.ErrOutboxFull the forecast is
	// retried; after any other error it is lost.
	PublishForecast func(Forecast) error
	// ForecastInterval is the interval between checks of the source for new rows.
	ForecastInterval time.Duration
	// UsualResidualShare is the share of residuals that are considered usual. A larger residual is an anomaly.
	UsualResidualShare float64
	// LockKeptModels, if set, locks the kept models briefly, because commands change them, too.
	LockKeptModels func() (unlock func() error, err error)
	// OnModelActivated, if set, is called in a background job after a model was put into use.
	OnModelActivated func(ctx context.Context, m *modelfile.Model) error
}

// Validate returns the errors of a configuration, which may be nil.
func (c *Config) Validate() (err error) {
	if c == nil {
		return nil
	}
	publishes := c.ForecastInterval > 0 && c.UsualResidualShare > 0
	if c.PublishForecast != nil && !publishes {
		err = errors.New("publishing predictions requires a forecast interval and a residual share above 0")
	}
	keeps := c.MaxKeptModels >= 1 && c.MinModelChangeInterval >= 0 && c.MaxRiskIncrease >= 0
	if !keeps {
		err = errors.Join(err, errors.New("predictions require at least one kept model, and a change interval and a "+
			"risk margin of 0 or more"))
	}
	return err
}

// PredictingProgram is an external program that makes predictions from its own rows.
type PredictingProgram interface {
	// Predict returns a model's predictions for rows that have arrived since the last call. If more is true, further
	// predictions are available. ModelName and AnomalyScore are not set.
	Predict(ctx context.Context, p *task.CompiledTask[float32], model []float32) (some []Forecast, more bool, err error)
}

// FetchedModelFile is a fetched file of a model.
type FetchedModelFile interface {
	ReadAll() ([]byte, error)
	RemoveFile() error
}

// PredictionDependencies contains the functions of the agent that the part calls. All except FindProgram are called on
// the event loop.
type PredictionDependencies struct {
	Tasks  part.LocalTaskProvider
	Source data.Source
	// HoldsOutRows means that the device holds out rows, on which new models are judged.
	HoldsOutRows bool
	// FindBaseModelInMemory returns the base model of the current round if it has this hash and is in memory, or nil.
	FindBaseModelInMemory func(hash wire.Digest) []float32
	// BuildPredictionParameters returns the parameters with which the device predicts, given a base model of a run.
	// They include personal parameters if the task has any.
	BuildPredictionParameters func(p *task.CompiledTask[float32], run wire.RunID, base []float32) []float32
	// PrepareFinetuning returns a function that fine-tunes a model on the device's rows in a background job. It returns
	// nil if the announced task has no fine-tuning.
	PrepareFinetuning func(version wire.ModelVersion) func(context.Context, *modelfile.Model) error
	// FetchModel fetches a base model. Then HandleArrivedModel or HandleCanceledModelFetch is called.
	FetchModel func(ref wire.BlobRef)
	// FindModelBeingFetched returns the hash of the base model that is being fetched. ok is false if there is none.
	FindModelBeingFetched func() (hash wire.Digest, ok bool)
	// FetchModelFile fetches the file of a model. done is not called if another file is fetched instead.
	FetchModelFile func(ref wire.BlobRef, done func(FetchedModelFile, error))
	// FindModelFileBeingFetched returns the hash of the file that is being fetched. ok is false if there is none.
	FindModelFileBeingFetched func() (hash wire.Digest, ok bool)
	// FindProgram returns the external program for tasks whose rows are known only to that program.
	FindProgram func() (PredictingProgram, error)
}

// PredictionManager is the part of an agent that manages the models for predictions. Without a configuration it does
// nothing.
type PredictionManager struct {
	core         *part.AgentCore
	cfg          *Config // configuration; nil if the device makes no predictions
	dependencies PredictionDependencies

	newestModel        announcedModel // newest announced model; zero before the first announcement
	lastJudgedHash     wire.Digest    // hash of the last judged model
	lastJudgedModel    announcedModel // last judged model, or a repeated announcement of the model in use
	modelBeingFetched  announcedModel // model that is being fetched for predictions
	judging            bool           // a model is being judged
	judgmentRetryAt    time.Time      // earliest time of the next judgment after a failure
	nextModelAllowedAt time.Time      // end of Config.MinModelChangeInterval after the last model
	activeModelCheckAt time.Time      // time of the next check of the file of the model in use
	// activeFileStamp identifies the content of the file of the model in use. It is empty before the first reading;
	// until then no model is judged.
	activeFileStamp string
	inUse           *modelfile.Model // model in use; nil if none
	isModelPinned   bool             // the device's owner has chosen the model in use
	rollout         rollout

	forecaster      forecaster      // used by background jobs
	lastComparison  modelComparison // comparison of the last job
	nextForecastAt  time.Time       // time of the next check for new rows
	forecastRunning bool            // a job is using the forecaster
}

// New returns a PredictionManager. cfg is nil if the device makes no predictions.
func New(core *part.AgentCore, cfg *Config, hooks PredictionDependencies) *PredictionManager {
	return &PredictionManager{core: core, cfg: cfg, dependencies: hooks}
}

const (
	// activeModelCheckInterval is the interval between checks whether a command has put another model into use.
	activeModelCheckInterval = 10 * time.Second
	// modelRetryDelay is the delay before a model is retried after it could not be fetched, judged or stored.
	modelRetryDelay = time.Minute
)

// announcedModel is a model that was announced.
type announcedModel struct {
	blobRef     wire.BlobRef
	taskDigest  wire.Digest
	run         wire.RunID
	version     wire.ModelVersion
	isRunResult bool // the run is over and this model is its result
}

// untrained reports whether no round has changed the model.
func (o *announcedModel) untrained() bool { return o.version == 0 }

// Start implements part.Starter.
func (p *PredictionManager) Start() {
	if p.cfg != nil {
		p.nextForecastAt = p.core.Loop.Now()
		p.readModelInUse(false)
	}
}

// NeedsLink implements part.LinkNeedReporter. New models may be announced at any time.
func (p *PredictionManager) NeedsLink() bool { return p.cfg != nil }

// FollowAnnouncement implements part.AnnouncementFollower. It records the announced model.
func (p *PredictionManager) FollowAnnouncement(e agentround.AnnouncementReceived) {
	a := &e.Announcement
	switch {
	case p.cfg == nil:
		return
	case p.followRollout(a):
	case a.Kind == wire.KindTraining && a.BaseModel.IsSet():
		p.newestModel = announcedModel{a.BaseModel, a.Task.Hash, e.Position.Run, a.BaseModelVersion,
			a.Phase == wire.PhaseFinished}
	}
	p.JudgeNewestModel()
}

// nextJudgmentAt returns the earliest time at which the newest model may be judged.
func (p *PredictionManager) nextJudgmentAt() time.Time {
	n, last := &p.newestModel, &p.lastJudgedModel
	if n.isRunResult || n.run != last.run || n.version >= 2*last.version ||
		p.judgmentRetryAt.After(p.nextModelAllowedAt) {
		return p.judgmentRetryAt
	}
	return p.nextModelAllowedAt
}

// JudgeNewestModel judges the newest model if it is due. It uses the base model of the round if that is in memory, or
// fetches the model. Training and predictions share a fetched model. JudgeNewestModel is called again when the
// announced task or its rows have changed.
func (p *PredictionManager) JudgeNewestModel() {
	if p.rollout.ReleasedModel.IsSet() {
		p.judgeNextRolloutModel()
		return
	}
	n, l := &p.newestModel, p.dependencies.Tasks.AnnouncedTask()
	if p.cfg == nil || !n.blobRef.IsSet() || n.untrained() || p.activeFileStamp == "" || p.judging || p.isModelPinned ||
		n.blobRef.Hash == p.lastJudgedHash || p.core.Loop.Now().Before(p.nextJudgmentAt()) || l == nil ||
		l.CompiledTask == nil || l.Hash != n.taskDigest || l.CompiledTask.Task.FinetuneSteps > 0 &&
		p.core.TrainingMustRest() {
		return
	}
	if p.inUse != nil && p.inUse.ParameterDigest == n.blobRef.Hash && p.inUse.Run == n.run {
		p.lastJudgedHash, p.lastJudgedModel = n.blobRef.Hash, *n
		return
	}
	if w := p.dependencies.FindBaseModelInMemory(n.blobRef.Hash); w != nil {
		p.judgeAnnouncedModel(*n, w)
		return
	}
	if hash, underway := p.dependencies.FindModelBeingFetched(); underway { // wait for its arrival
		if hash == n.blobRef.Hash {
			p.modelBeingFetched = *n
		}
		return
	}
	if p.core.IsConnected && !p.core.IsUplinkBudgetSpent() && !p.postponeIfUnjudgeable(n.run, n.version) {
		p.dependencies.FetchModel(n.blobRef)
		p.modelBeingFetched = *n
	}
}

// postponeIfUnjudgeable postpones a model if the rows for judging it are not available now, and reports whether it did.
func (p *PredictionManager) postponeIfUnjudgeable(run wire.RunID, version wire.ModelVersion) bool {
	if !p.newModelTrial(nil).rowsUnavailable {
		return false
	}
	p.judgmentRetryAt = p.core.Loop.Now().Add(modelRetryDelay)
	p.core.Observer.Observe(ModelJudged{Run: run, Version: version, Result: Unjudged, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN()})
	return true
}

// HandleArrivedModel handles a fetched base model, or the error that made it unavailable.
func (p *PredictionManager) HandleArrivedModel(hash wire.Digest, w []float32, err error) {
	of := p.modelBeingFetched
	if of.blobRef.Hash == hash {
		p.modelBeingFetched = announcedModel{}
	} else {
		of = p.newestModel
	}
	switch now := p.core.Loop.Now(); {
	case p.cfg == nil:
	case err != nil && of.blobRef.Hash == hash:
		p.judgmentRetryAt = now.Add(modelRetryDelay)
	case err == nil && of.blobRef.Hash == hash && !of.untrained() && !p.judging && p.activeFileStamp != "" &&
		!now.Before(p.nextJudgmentAt()):
		p.judgeAnnouncedModel(of, w)
	default:
		p.JudgeNewestModel()
	}
}

// NeedsModel reports whether the base model being fetched is needed for predictions.
func (p *PredictionManager) NeedsModel(hash wire.Digest) bool {
	return p.modelBeingFetched.blobRef.Hash == hash
}

// HandleCanceledModelFetch handles the cancellation of a base model's transfer.
func (p *PredictionManager) HandleCanceledModelFetch(hash wire.Digest) {
	if p.modelBeingFetched.blobRef.Hash == hash {
		p.modelBeingFetched = announcedModel{}
	}
}

// ParametersOfModelInUse returns the parameters of the model in use if it is the given base model, and nil otherwise.
// It also returns nil if no task with fitting rows is known, or if the task has personal parameters or fine-tuning.
func (p *PredictionManager) ParametersOfModelInUse(hash wire.Digest) []float32 {
	m, t := p.inUse, p.dependencies.Tasks.LastPreparedTask()
	if t == nil || t.CompiledTask.HasPersonalPart() || t.CompiledTask.Task.FinetuneSteps > 0 {
		return nil
	}
	if m == nil || m.ParameterDigest != hash ||
		len(m.ParameterBytes) != 4*t.CompiledTask.Model.Architecture().ParameterCount() {
		return nil
	}
	w, err := m.Parameters()
	if err != nil {
		return nil
	}
	return w
}

// judgeAnnouncedModel judges an announced model and puts it into use if it passes.
func (p *PredictionManager) judgeAnnouncedModel(of announcedModel, w []float32) {
	l := p.dependencies.Tasks.AnnouncedTask()
	if of.blobRef.Hash == p.lastJudgedHash || l == nil || l.CompiledTask == nil || l.Hash != of.taskDigest {
		return
	}
	parameters, hash := wire.AppendVector(nil, p.dependencies.BuildPredictionParameters(l.CompiledTask, of.run, w)),
		of.blobRef.Hash
	if l.CompiledTask.HasPersonalPart() {
		hash = wire.BlobDigest(parameters)
	}
	m := modelfile.NewModel(&l.CompiledTask.Task, l.CompiledTask.Model.Architecture(), parameters, hash)
	m.Run, m.Version = of.run, of.version
	t := p.newModelTrial(m)
	t.finetune = p.dependencies.PrepareFinetuning(of.version)
	p.runModelTrial(t, func(event ModelJudged) {
		now := p.core.Loop.Now()
		switch event.Result {
		case Failed, Unjudged, OtherPinned: // judge it again later
			p.lastJudgedHash, p.judgmentRetryAt = wire.Digest{}, now.Add(modelRetryDelay)
		default:
			p.lastJudgedHash, p.lastJudgedModel, p.nextModelAllowedAt = of.blobRef.Hash, of,
				now.Add(p.cfg.MinModelChangeInterval)
		}
	})
}

// newModelTrial returns the trial of a model, with the held-out rows if they are available.
func (p *PredictionManager) newModelTrial(m *modelfile.Model) *modelTrial {
	t := &modelTrial{newModel: m, inUse: p.inUse, protectedModel: p.rollout.ReleasedModel, folder: p.core.StateFolder,
		cfg: p.cfg}
	rows, l := p.dependencies.Tasks.LastPreparedTask(), p.dependencies.Tasks.AnnouncedTask()
	if rows != nil && rows.LocalTask == l && p.dependencies.Tasks.RowsFitTask() && rows.HeldOutRows != nil {
		t.heldOutRows, t.readErr = rows.HeldOutRows, rows.View.Err
		t.rowDescription = modelfile.NewModel(&l.CompiledTask.Task, l.CompiledTask.Model.Architecture(), nil,
			wire.Digest{})
	}
	hidden := l != nil && l.CompiledTask != nil && l.AreRowsHiddenInTrainer()
	t.rowsUnavailable = t.heldOutRows == nil && p.dependencies.HoldsOutRows && t.inUse != nil && !hidden
	return t
}

// runModelTrial judges a model in a background job and puts it into use if it passes. Then it calls done on the event
// loop.
func (p *PredictionManager) runModelTrial(t *modelTrial, done func(ModelJudged)) {
	p.judging = true
	p.core.ModelJobs.Enqueue(func() {
		event, hookErr := t.run(p.core.Loop.Context())
		p.core.Loop.RunOnLoop(func() {
			p.judging = false
			done(event)
			if event.Result != OtherPinned {
				p.core.Observer.Observe(event)
			}
			if hookErr != nil {
				p.core.Observer.Observe(ActivationCommandFailed{hookErr})
			}
			p.readModelInUse(event.Result == Adopted)
		})
	})
}

// Deadline implements part.TickHook.
func (p *PredictionManager) Deadline() (time.Time, bool) {
	if p.cfg == nil {
		return time.Time{}, false
	}
	at := p.activeModelCheckAt
	_, wanted := p.nextRolloutModel()
	next := p.judgmentRetryAt
	if p.newestModel.blobRef.IsSet() && !p.newestModel.untrained() && p.newestModel.blobRef.Hash != p.lastJudgedHash {
		wanted, next = true, p.nextJudgmentAt()
	}
	if wanted && next.After(p.core.Loop.Now()) && next.Before(at) {
		at = next
	}
	if p.cfg.PublishForecast != nil && !p.forecastRunning && p.nextForecastAt.Before(at) {
		at = p.nextForecastAt
	}
	return at, true
}

// Tick implements part.TickHook.
func (p *PredictionManager) Tick(now time.Time) {
	if p.cfg == nil {
		return
	}
	if !now.Before(p.activeModelCheckAt) {
		p.readModelInUse(false)
	}
	p.JudgeNewestModel()
	p.startForecasts(now)
}

// FillHello implements part.HelloFiller.
func (p *PredictionManager) FillHello(h *wire.Hello) { h.Residuals = p.candidateResiduals() }

// readModelInUse reads the model in use in a background job if its file has changed or changed is true.
func (p *PredictionManager) readModelInUse(changed bool) {
	p.activeModelCheckAt = p.core.Loop.Now().Add(activeModelCheckInterval)
	before := p.activeFileStamp
	if changed {
		before = ""
	}
	p.core.ModelJobs.Enqueue(func() {
		f, err := readActiveModel(p.core.StateFolder, before)
		p.core.Loop.RunOnLoop(func() {
			if f.contentStamp == before {
				if err != nil {
					p.core.Logger.Error("cannot read the models for predictions", "err", err)
				}
				return
			}
			wasPinned := p.isModelPinned
			p.isModelPinned = f.isPinned
			if p.activeFileStamp = f.contentStamp; err != nil {
				p.core.Logger.Error("cannot read the model in use; it will be replaced by a new one", "err", err)
			}
			was := p.inUse
			if p.inUse = f.model; f.model != nil && (!f.model.IsSameModel(was) || f.isPinned != wasPinned) {
				p.core.Observer.Observe(ModelInUseChanged{Run: f.model.Run, Version: f.model.Version,
					Task:        f.model.TaskName,
					InstalledAt: f.modifiedAt,
					IsPinned:    f.isPinned})
			}
			p.JudgeNewestModel()
		})
	})
}

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{
	judgedModels, judgedModelRisk, riskOfModelInUse,
	modelInUseVersion, modelInUseSince, modelHookFailures,
	forecasts, lostForecasts, failedForecasts, anomalies, forecastsOK, lastForecastAt, meanResidual, forecastDuration,
}

var (
	modelInUseVersion = observe.OptionalGauge("model_in_use_version",
		"Version of the model used for predictions.")
	modelInUseSince = observe.OptionalGauge("model_in_use_timestamp_seconds",
		"Time at which the model in use was installed. Survives restarts.")
	modelHookFailures = observe.Counter("model_hook_failures_total", "Failures of the command predict.hook.")
)

const modelHookCondition = "hook"

// ModelInUseValue is the name of the status value with type *ModelInUse.
const ModelInUseValue = "model in use"

// ModelInUse describes the model in use, as shown in the status.
type ModelInUse struct {
	Run        wire.RunID        `json:"run"`
	Version    wire.ModelVersion `json:"version"`
	InUseSince time.Time         `json:"since"`
	IsPinned   bool              `json:"pinned"` // pinned by the device's owner
}

// ModelInUseChanged reports that the device now uses another model for predictions.
type ModelInUseChanged struct {
	Run         wire.RunID
	Version     wire.ModelVersion
	Task        string
	InstalledAt time.Time // installation time of its file; may precede this start
	IsPinned    bool      // pinned by the device's owner
}

// Describe implements observe.Event.
func (e ModelInUseChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(modelInUseVersion, float64(e.Version))
	d.SetGauge(modelInUseSince, observe.UnixSeconds(e.InstalledAt))
	d.ShowStatusValue(ModelInUseValue, &ModelInUse{e.Run, e.Version, e.InstalledAt, e.IsPinned})
	d.Log(observe.Info, "model in use changed", "run", e.Run, "version", e.Version, "task", e.Task, "pinned",
		e.IsPinned)
}

// ActivationCommandFailed reports that the command after a model change has failed. The model stays in use.
type ActivationCommandFailed struct{ Err error }

// Describe implements observe.Event. The next model change resolves the condition.
func (e ActivationCommandFailed) Describe(d *observe.EventDescription) {
	d.IncCounter(modelHookFailures)
	d.Log(observe.Error, "predict.hook failed", "err", e.Err)
	d.RaiseCondition(modelHookCondition, fmt.Sprintf("predict.hook failed: %v", e.Err),
		"correct the command in predict.hook; agentd runs it again with the next model")
}
