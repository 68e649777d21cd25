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

// Config configures the device's predictions.
type Config struct {
	MaxKeptModels int // number of models kept in the state folder, at least 1
	// MinModelChangeInterval is the minimum time between two model changes. It does not apply to the first and the
	// final model of a run, or if the version number has at least doubled.
	MinModelChangeInterval time.Duration
	// MaxRiskIncrease is the relative increase of the risk on held-out rows up to which a new model is accepted. For
	// example, 0.1 accepts a risk of at most 1.1 times the previous risk.
	MaxRiskIncrease float64
	// PublishForecast publishes a forecast. A nil function means that the device makes no forecasts. After the error
	// mqtt.ErrOutboxFull, publishing is retried; after any other error, the forecast is dropped.
	PublishForecast func(Forecast) error
	// ForecastInterval is the interval between checks of the source for new rows.
	ForecastInterval time.Duration
	// UsualResidualShare is the share of residuals that are considered usual. A larger residual is an anomaly.
	UsualResidualShare float64
	// ShowsValues makes the newest forecast and the newest residual metrics of the device.
	ShowsValues bool
	// LockKeptModels locks the stored models against concurrent changes by command-line tools. Nil means no locking.
	LockKeptModels func() (unlock func() error, err error)
	// OnModelActivated is called in a background job after a model was put into use; it may be nil.
	OnModelActivated func(ctx context.Context, m *modelfile.Model) error
}

// Validate returns an error that lists all problems of the configuration, or nil.
func (c *Config) Validate() (err error) {
	if c == nil {
		return nil
	}
	publishes := c.ForecastInterval > 0 && c.UsualResidualShare > 0
	if c.PublishForecast != nil && !publishes {
		err = errors.New("publishing predictions requires a forecast interval above 0 and a residual share above 0")
	}
	keeps := c.MaxKeptModels >= 1 && c.MinModelChangeInterval >= 0 && c.MaxRiskIncrease >= 0
	if !keeps {
		err = errors.Join(err, errors.New("predictions require at least one kept model, and neither the change "+
			"interval nor the risk margin may be negative"))
	}
	return err
}

// PredictingProgram is an external program that makes predictions from its own rows.
type PredictingProgram interface {
	// Predict returns a model's predictions for the rows that have arrived since the last call. If the result more is
	// true, further predictions are available. ModelName and AnomalyScore are not set.
	Predict(ctx context.Context, p *task.CompiledTask[float32], model []float32) (some []Forecast, more bool, err error)
}

// FetchedModelFile is a model file that was fetched from the coordinator.
type FetchedModelFile interface {
	ReadAll() ([]byte, error)
	RemoveFile() error
}

// PredictionDependencies contains the agent's callbacks for predictions. All except FindProgram are called on the event
// loop.
type PredictionDependencies struct {
	Tasks  part.LocalTaskProvider
	Source data.Source
	// HoldsOutRows means that the device excludes some rows from training, on which new models are compared.
	HoldsOutRows bool
	// FindBaseModelInMemory returns the base model of the current round if the model has this hash and is in memory.
	// Otherwise it returns nil.
	FindBaseModelInMemory func(hash wire.Digest) []float32
	// BuildPredictionParameters returns the parameters for predictions from a base model of a run, including personal
	// parameters if the task has any.
	BuildPredictionParameters func(p *task.CompiledTask[float32], run wire.RunID, base []float32) []float32
	// PrepareFinetuning returns a function that fine-tunes a model on the device's rows in a background job. It returns
	// nil if the announced task has no fine-tuning.
	PrepareFinetuning func(version wire.ModelVersion) func(context.Context, *modelfile.Model) error
	// FetchModel starts fetching a base model. Afterwards HandleArrivedModel or HandleCanceledModelFetch is called.
	FetchModel func(ref wire.BlobRef)
	// FindModelBeingFetched returns the hash of the base model that is being fetched. ok is false if there is none.
	FindModelBeingFetched func() (hash wire.Digest, ok bool)
	// FetchModelFile starts fetching a model file. done is not called if the fetch is replaced by another file.
	FetchModelFile func(ref wire.BlobRef, done func(FetchedModelFile, error))
	// FindModelFileBeingFetched returns the hash of the file that is being fetched. ok is false if there is none.
	FindModelFileBeingFetched func() (hash wire.Digest, ok bool)
	// FindProgram returns the external program. It is used for tasks whose rows only that program can read.
	FindProgram func() (PredictingProgram, error)
}

// PredictionManager is the part of an agent that manages the models for predictions. Without a configuration it does
// nothing.
type PredictionManager struct {
	core         *part.AgentCore
	cfg          *Config // configuration; nil if the device makes no predictions
	dependencies PredictionDependencies

	newestModel        announcedModel // newest announced model; zero before the first announcement
	lastJudgedHash     wire.Digest    // hash of the last model that was compared
	lastJudgedModel    announcedModel // last model that was compared or was already in use
	modelBeingFetched  announcedModel // model that is being fetched for predictions
	judging            bool           // true while a job compares a model
	judgmentRetryAt    time.Time      // earliest time of the next comparison after a failure
	nextModelAllowedAt time.Time      // earliest time of the next new model (Config.MinModelChangeInterval)
	activeModelCheckAt time.Time      // time of the next check whether the model file has changed
	// activeFileStamp identifies the content of the file with the model in use. It is empty before the file was read
	// for the first time. Until then, new models are not compared.
	activeFileStamp string
	inUse           *modelfile.Model // model in use; nil if the device uses none
	isModelPinned   bool             // true if the device's owner has pinned the model in use
	rollout         rollout

	forecaster      forecaster      // state of forecasting, used by background jobs
	lastComparison  modelComparison // model comparison made by the last forecast job
	nextForecastAt  time.Time       // time of the next check for new rows
	forecastRunning bool            // true while a job uses forecaster
}

// New returns a PredictionManager. cfg is nil if the device makes no predictions.
func New(core *part.AgentCore, cfg *Config, hooks PredictionDependencies) *PredictionManager {
	return &PredictionManager{core: core, cfg: cfg, dependencies: hooks}
}

const (
	// activeModelCheckInterval is the time between two checks whether a command-line tool has activated another model.
	activeModelCheckInterval = 10 * time.Second
	// modelRetryDelay is the delay before a model is retried after it could not be fetched, judged or stored.
	modelRetryDelay = time.Minute
)

// announcedModel is a model from an announcement of the coordinator.
type announcedModel struct {
	blobRef     wire.BlobRef
	taskDigest  wire.Digest
	run         wire.RunID
	version     wire.ModelVersion
	isRunResult bool // whether the run has ended with this model as its result
}

// untrained reports whether the announced model is still the initial model, which no round has changed.
func (o *announcedModel) untrained() bool { return o.version == 0 }

// Start implements part.Starter.
func (p *PredictionManager) Start() {
	if p.cfg != nil {
		p.nextForecastAt = p.core.Loop.Now()
		p.readModelInUse(false)
	}
}

// NeedsLink implements part.LinkNeedReporter. The agent stays connected because new models may be announced at any
// time.
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

// nextJudgmentAt returns the earliest time at which the newest announced model may be compared.
func (p *PredictionManager) nextJudgmentAt() time.Time {
	n, last := &p.newestModel, &p.lastJudgedModel
	if n.isRunResult || n.run != last.run || n.version >= 2*last.version ||
		p.judgmentRetryAt.After(p.nextModelAllowedAt) {
		return p.judgmentRetryAt
	}
	return p.nextModelAllowedAt
}

// JudgeNewestModel compares the newest model with the model in use if a comparison is due. It uses the round's base
// model if that is the newest model and is in memory. Otherwise it fetches the model, and is called again when the
// model has arrived, or when the announced task or its rows have changed.
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
	// Wait until the current transfer has ended.
	if hash, underway := p.dependencies.FindModelBeingFetched(); underway {
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

// postponeIfUnjudgeable postpones the comparison of a model and returns true if the held-out rows are unavailable.
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

// NeedsModel reports whether predictions need the base model with this hash, which is being fetched.
func (p *PredictionManager) NeedsModel(hash wire.Digest) bool {
	return p.modelBeingFetched.blobRef.Hash == hash
}

// HandleCanceledModelFetch handles the cancellation of a base model's transfer.
func (p *PredictionManager) HandleCanceledModelFetch(hash wire.Digest) {
	if p.modelBeingFetched.blobRef.Hash == hash {
		p.modelBeingFetched = announcedModel{}
	}
}

// ParametersOfModelInUse returns the parameters of the model in use if the model is the base model with the given hash,
// and nil otherwise. It also returns nil if no task with fitting rows is known, or if the task has personal parameters
// or fine-tuning.
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

// judgeAnnouncedModel compares an announced model, whose parameters are w, with the model in use and activates it if it
// is good enough.
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
		case Failed, Unjudged, OtherPinned: // The comparison will be retried.
			p.lastJudgedHash, p.judgmentRetryAt = wire.Digest{}, now.Add(modelRetryDelay)
		default:
			p.lastJudgedHash, p.lastJudgedModel, p.nextModelAllowedAt = of.blobRef.Hash, of,
				now.Add(p.cfg.MinModelChangeInterval)
		}
	})
}

// newModelTrial returns a comparison of the model m with the model in use, on the held-out rows if available.
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

// runModelTrial compares a new model in a background job and activates it if it is good enough. It then calls done on
// the event loop.
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
				p.core.Logger.Error("cannot read the model in use; the next new model will replace it", "err", err)
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

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{
	judgedModels, judgedModelRisk, riskOfModelInUse,
	modelInUseVersion, modelInUseSince, modelHookFailures,
	forecasts, lostForecasts, failedForecasts, anomalies, forecastsOK, lastForecastAt, meanResidual, forecastDuration,
	forecastValue, forecastHorizon, targetValue, targetForecast, forecastResidual,
}

var (
	modelInUseVersion = observe.OptionalGauge("model_in_use_version",
		"Version of the model used for predictions.")
	modelInUseSince = observe.OptionalGauge("model_in_use_timestamp_seconds",
		"Time at which the model in use was installed. The value is kept across restarts.")
	modelHookFailures = observe.Counter("model_hook_failures_total", "Failed runs of the command predict.hook.")
)

const modelHookCondition = "hook"

// ModelInUseValue is the name of the status value with type *ModelInUse.
const ModelInUseValue = "model in use"

// ModelInUse describes the model in use, as shown in the status.
type ModelInUse struct {
	Run        wire.RunID        `json:"run"`
	Version    wire.ModelVersion `json:"version"`
	InUseSince time.Time         `json:"since"`
	IsPinned   bool              `json:"pinned"` // true if the device's owner has pinned the model
}

// ModelInUseChanged reports that the device now uses another model for predictions.
type ModelInUseChanged struct {
	Run         wire.RunID
	Version     wire.ModelVersion
	Task        string
	InstalledAt time.Time // time when the file was installed, possibly before this start
	IsPinned    bool      // true if the device's owner has pinned the model
}

// Describe implements observe.Event.
func (e ModelInUseChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(modelInUseVersion, float64(e.Version))
	d.SetGauge(modelInUseSince, observe.UnixSeconds(e.InstalledAt))
	d.ShowStatusValue(ModelInUseValue, &ModelInUse{e.Run, e.Version, e.InstalledAt, e.IsPinned})
	d.Log(observe.Info, "model in use changed", "run", e.Run, "version", e.Version, "task", e.Task, "pinned",
		e.IsPinned)
}

// ActivationCommandFailed reports that the command configured to run after a model change has failed. The new model
// stays in use.
type ActivationCommandFailed struct{ Err error }

// Describe implements observe.Event. The next model change resolves the condition.
func (e ActivationCommandFailed) Describe(d *observe.EventDescription) {
	d.IncCounter(modelHookFailures)
	d.Log(observe.Error, "predict.hook failed", "err", e.Err)
	d.RaiseCondition(modelHookCondition, fmt.Sprintf("predict.hook failed: %v", e.Err),
		"correct the command in predict.hook; agentd runs the command again with the next model")
}
