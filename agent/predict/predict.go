// Package predict is the models with which the device predicts: it decides whether a new model comes into use, follows
// the rollout of the coordinator, and makes forecasts from the rows of the device's source.
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

// Config has an agent keep models, so that the device can predict.
type Config struct {
	MaxKeptModels int // number of models that stay in the state folder, at least 1
	// MinModelChangeInterval is the least time between two new models. It does not delay the first model of a run, a
	// model whose version is at least twice the last version, or the result of a run.
	MinModelChangeInterval time.Duration
	// MaxRiskIncrease limits the risk of a new model on the held-out rows, relative to the model in use: the model is
	// refused if its risk is more than 1+MaxRiskIncrease times as large.
	MaxRiskIncrease float64
	// Publish, if set, publishes the forecasts for the device's own rows. After mqtt.ErrOutboxFull a forecast is
	// published again; after any other error it is lost.
	PublishForecast func(Forecast) error
	// ForecastInterval is the time between two checks of the source for new rows.
	ForecastInterval time.Duration
	// UsualResidualShare is the share of the device's residuals that is usual: a larger residual is an anomaly.
	UsualResidualShare float64
	// LockKeptModels, if set, locks the kept models for a moment, since commands change them too.
	LockKeptModels func() (unlock func() error, err error)
	// OnModelActivated, if set, is called beside the owner after a model was put into use.
	OnModelActivated func(ctx context.Context, m *modelfile.Model) error
}

// Validate returns the errors of a configuration, which may be nil.
func (c *Config) Validate() (err error) {
	if c == nil {
		return nil
	}
	publishes := c.ForecastInterval > 0 && c.UsualResidualShare > 0
	if c.PublishForecast != nil && !publishes {
		err = errors.New("predictions that are published need a time and a share above 0")
	}
	keeps := c.MaxKeptModels >= 1 && c.MinModelChangeInterval >= 0 && c.MaxRiskIncrease >= 0
	if !keeps {
		err = errors.Join(err, errors.New("predictions need models that are kept, and a time and a margin that are "+
			"not negative"))
	}
	return err
}

// PredictingProgram is an external program that predicts from rows that only it knows.
type PredictingProgram interface {
	// Predict returns predictions by a model for rows that have arrived since the last call. If there are more, it may
	// return some of them. They have no Model and no AnomalyScore.
	Predict(ctx context.Context, p *task.CompiledTask[float32], model []float32) (some []Forecast, more bool, err error)
}

// FetchedModelFile is the file of a model that was fetched.
type FetchedModelFile interface {
	ReadAll() ([]byte, error)
	RemoveFile() error
}

// PredictionDependencies are the functions of the agent that the part calls. All are called on the owner's goroutine,
// except Program.
type PredictionDependencies struct {
	Tasks  part.LocalTaskProvider
	Source data.Source
	// HoldsOutRows means that the device holds rows out, on which new models are judged.
	HoldsOutRows bool
	// FindBaseModelInMemory returns the base model of the round under way if it is that model and is in memory, or nil.
	FindBaseModelInMemory func(hash wire.Digest) []float32
	// BuildPredictionParameters returns the parameters with which the device predicts, given a base model of a run.
	// They include personal parameters if the task has any.
	BuildPredictionParameters func(p *task.CompiledTask[float32], run wire.RunID, base []float32) []float32
	// PrepareFinetuning returns a function that fine-tunes a model on the rows of the device, beside the owner. It
	// returns nil if models of the announced task are not fine-tuned.
	PrepareFinetuning func(version wire.ModelVersion) func(context.Context, *modelfile.Model) error
	// FetchModel fetches a base model. HandleArrivedModel is called with it, or HandleCanceledModelFetch.
	FetchModel func(ref wire.BlobRef)
	// FindModelBeingFetched returns the hash of the base model that is being fetched. It is not ok if none is.
	FindModelBeingFetched func() (hash wire.Digest, ok bool)
	// FetchModelFile fetches the file of a model. done is not called if another file is fetched instead.
	FetchModelFile func(ref wire.BlobRef, done func(FetchedModelFile, error))
	// FindModelFileBeingFetched returns the hash of the file that is being fetched. It is not ok if none is.
	FindModelFileBeingFetched func() (hash wire.Digest, ok bool)
	// FindProgram returns the external program that trains tasks whose rows only it knows.
	FindProgram func() (PredictingProgram, error)
}

// PredictionManager is the part of an agent that keeps the models with which the device predicts. Without a
// configuration it does nothing.
type PredictionManager struct {
	core         *part.AgentCore
	cfg          *Config // nil = the device does not predict
	dependencies PredictionDependencies

	newestModel        announcedModel // zero before an announcement
	lastJudgedHash     wire.Digest    // of the last model that was judged
	lastJudgedModel    announcedModel // the same model, or a repeated announcement of the model in use
	modelBeingFetched  announcedModel // the model that is being fetched for predictions
	judging            bool           // a model is being judged
	judgmentRetryAt    time.Time      // after a failure: no model is judged before
	nextModelAllowedAt time.Time      // the end of Config.MinModelChangeInterval after the last model
	activeModelCheckAt time.Time      // of the next check of the file of the model in use
	// activeFileStamp identifies the content of that file. It is empty before the file was read; no model is judged
	// before.
	activeFileStamp string
	inUse           *modelfile.Model // nil if there is none
	isModelPinned   bool             // the device's owner has chosen the model in use
	rollout         rollout

	forecaster      forecaster      // used by jobs
	lastComparison  modelComparison // of the last job
	nextForecastAt  time.Time       // of the next check for new rows
	forecastRunning bool            // a job uses the forecaster
}

// New makes the part. cfg is nil if the device does not predict.
func New(core *part.AgentCore, cfg *Config, hooks PredictionDependencies) *PredictionManager {
	return &PredictionManager{core: core, cfg: cfg, dependencies: hooks}
}

const (
	// activeModelCheckInterval is the time between two checks whether a command has put another model into use.
	activeModelCheckInterval = 10 * time.Second
	// modelRetryDelay is the time after which a model is retried that could not be fetched, judged or stored.
	modelRetryDelay = time.Minute
)

// announcedModel is a model that was announced.
type announcedModel struct {
	blobRef     wire.BlobRef
	taskDigest  wire.Digest
	run         wire.RunID
	version     wire.ModelVersion
	isRunResult bool // the run is over, and this is its result
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

// NeedsLink implements part.LinkNeedReporter: new models may be announced at any time.
func (p *PredictionManager) NeedsLink() bool { return p.cfg != nil }

// FollowAnnouncement implements part.AnnouncementFollower: it notes the model of an announcement.
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

// nextJudgmentAt returns when the newest model may be judged.
func (p *PredictionManager) nextJudgmentAt() time.Time {
	n, last := &p.newestModel, &p.lastJudgedModel
	if n.isRunResult || n.run != last.run || n.version >= 2*last.version ||
		p.judgmentRetryAt.After(p.nextModelAllowedAt) {
		return p.judgmentRetryAt
	}
	return p.nextModelAllowedAt
}

// JudgeNewestModel judges the newest model if that is due: the base model of the round if it is in memory, or else it
// is fetched. No model is fetched twice: training and predictions share what arrives. JudgeNewestModel is called again
// when the announced task or its rows have changed.
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
	if hash, underway := p.dependencies.FindModelBeingFetched(); underway { // when that is here, the newest is judged
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

// postponeIfUnjudgeable reports whether it is useless to fetch a model, because the rows to judge it on are not
// available now. It is fetched later.
func (p *PredictionManager) postponeIfUnjudgeable(run wire.RunID, version wire.ModelVersion) bool {
	if !p.newModelTrial(nil).rowsUnavailable {
		return false
	}
	p.judgmentRetryAt = p.core.Loop.Now().Add(modelRetryDelay)
	p.core.Observer.Observe(ModelJudged{Run: run, Version: version, Result: Unjudged, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN()})
	return true
}

// HandleArrivedModel handles a base model that was fetched, or the reason why it is not available.
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

// NeedsModel reports whether a base model that is being fetched is needed for predictions.
func (p *PredictionManager) NeedsModel(hash wire.Digest) bool {
	return p.modelBeingFetched.blobRef.Hash == hash
}

// HandleCanceledModelFetch is called when a base model is no longer fetched.
func (p *PredictionManager) HandleCanceledModelFetch(hash wire.Digest) {
	if p.modelBeingFetched.blobRef.Hash == hash {
		p.modelBeingFetched = announcedModel{}
	}
}

// ParametersOfModelInUse returns the parameters of the model in use if it is that base model, and nil otherwise. It
// also returns nil before there is a task whose rows fit, and if models of the task have personal parameters or are
// fine-tuned.
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

// judgeAnnouncedModel judges an announced model, and puts it into use if it is good.
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
		case Failed, Unjudged, OtherPinned: // it is judged again later
			p.lastJudgedHash, p.judgmentRetryAt = wire.Digest{}, now.Add(modelRetryDelay)
		default:
			p.lastJudgedHash, p.lastJudgedModel, p.nextModelAllowedAt = of.blobRef.Hash, of,
				now.Add(p.cfg.MinModelChangeInterval)
		}
	})
}

// newModelTrial prepares the trial of a model, on the held-out rows if they are available.
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

// runModelTrial judges a model beside the owner, and puts it into use if it is as good as the model in use. Then it
// calls done on the owner's goroutine.
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

// readModelInUse reads the model in use beside the owner, if its file has changed or changed is true.
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
					p.core.Logger.Error("the models to predict with cannot be read", "err", err)
				}
				return
			}
			wasPinned := p.isModelPinned
			p.isModelPinned = f.isPinned
			if p.activeFileStamp = f.contentStamp; err != nil {
				p.core.Logger.Error("the model in use cannot be read; a new one takes its place", "err", err)
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

// ModelInUseValue is the name of the status value *ModelInUse.
const ModelInUseValue = "model in use"

// ModelInUse is the model that the device predicts with, as a status shows it.
type ModelInUse struct {
	Run        wire.RunID        `json:"run"`
	Version    wire.ModelVersion `json:"version"`
	InUseSince time.Time         `json:"since"`
	IsPinned   bool              `json:"pinned"` // by the device's owner
}

// ModelInUseChanged: the device predicts with another model from now on.
type ModelInUseChanged struct {
	Run         wire.RunID
	Version     wire.ModelVersion
	Task        string
	InstalledAt time.Time // when its file was installed, which may be before this start
	IsPinned    bool      // by the device's owner
}

// Describe implements observe.Event.
func (e ModelInUseChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(modelInUseVersion, float64(e.Version))
	d.SetGauge(modelInUseSince, observe.UnixSeconds(e.InstalledAt))
	d.ShowStatusValue(ModelInUseValue, &ModelInUse{e.Run, e.Version, e.InstalledAt, e.IsPinned})
	d.Log(observe.Info, "model in use changed", "run", e.Run, "version", e.Version, "task", e.Task, "pinned",
		e.IsPinned)
}

// ActivationCommandFailed: the command that is run after a model was put into use has failed. The model stays in use.
type ActivationCommandFailed struct{ Err error }

// Describe implements observe.Event. The next model that is put into use resolves the condition.
func (e ActivationCommandFailed) Describe(d *observe.EventDescription) {
	d.IncCounter(modelHookFailures)
	d.Log(observe.Error, "predict.hook failed", "err", e.Err)
	d.RaiseCondition(modelHookCondition, fmt.Sprintf("predict.hook failed: %v", e.Err),
		"correct the command in predict.hook; agentd runs it again with the next model")
}
