package agent

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// PredictionConfig has an agent keep models, so that the device can predict.
type PredictionConfig struct {
	MaxKeptModels int // models that stay in the folder, at least 1
	// Refresh is the least time between two new models. It does not delay the first model of a run, a model whose
	// version is at least twice that of the last one, or the result of a run.
	Refresh time.Duration
	// MaxRiskIncrease is how much larger the risk of a new model on the rows that are held out may be than that of the
	// model in use, as a share of it, before it is refused.
	MaxRiskIncrease float64
	// Publish, if set, is given the forecasts of the device's own rows, looked for so often. An error tells that one is
	// lost; with mqtt.ErrBusy it is given again.
	Publish          func(Forecast) error
	ForecastInterval time.Duration
	// UsualResidualShare is the share of the device's residuals that is usual: one that is larger is an anomaly.
	UsualResidualShare float64
	// Lock, if set, locks the models for a moment, since commands change them too.
	Lock func() (unlock func() error, err error)
	// Activated, if set, is called when another model is in use, beside the owner.
	Activated func(ctx context.Context, m *modelfile.Model) error
}

const (
	// activeModelCheckInterval is how often the agent looks whether a command has put another model into use.
	activeModelCheckInterval = 10 * time.Second
	// modelRetryDelay is the time after which a model that could not be had, judged or stored is tried again.
	modelRetryDelay = time.Minute
)

// announcedModel is a model that was announced.
type announcedModel struct {
	ref     wire.BlobRef
	task    wire.Digest
	run     wire.RunID
	version wire.ModelVersion
	final   bool // the run is over, and this is its result
}

// announcedModelOf returns the model of an announcement.
func announcedModelOf(e *round.AnnouncementReceived) announcedModel {
	ann := &e.Announcement
	return announcedModel{ann.BaseModel, ann.Task.Hash, e.Position.Run, ann.BaseModelVersion,
		ann.Phase == wire.PhaseFinished}
}

// untrained reports whether no round has changed the model.
func (o *announcedModel) untrained() bool { return o.version == 0 }

// predictionModels is what the owner knows of the models to predict with.
type predictionModels struct {
	jobs               *host.SerialQueue
	newest             announcedModel // zero before an announcement
	lastJudgedHash     wire.Digest    // the last model that was judged
	lastJudged         announcedModel // the same, or a repeated announcement of the model in use
	pulling            announcedModel // is pulled to predict with, whether the agent trains on it or not
	judging            bool           // one is being judged
	retryAt            time.Time      // none is taken before, after a failure
	refreshAt          time.Time      // the end of Predictions.Refresh after the last model
	activeModelCheckAt time.Time      // of the next look at the file of the model in use
	// of that file, as it was read; empty before the first look, after which models are judged
	stamp   string
	inUse   *modelfile.Model
	pinned  bool
	rollout rollout

	forecaster      forecaster      // jobs use it
	lastComparison  modelComparison // of the last job
	nextForecastAt  time.Time       // of the next look at the source
	forecastRunning bool            // a job uses the forecaster
}

// noteAnnouncedModel takes note of the model of an announcement that is obeyed.
func (a *Agent) noteAnnouncedModel(e round.AnnouncementReceived) {
	ann := &e.Announcement
	switch {
	case a.cfg.Predict == nil:
		return
	case a.followRollout(ann):
	case ann.Kind == wire.KindTraining && ann.BaseModel.Present():
		a.models.newest = announcedModelOf(&e)
	}
	a.startNewestModelTrial()
}

// adoptableAt returns when the newest model may be taken.
func (k *predictionModels) adoptableAt() time.Time {
	n, was := &k.newest, &k.lastJudged
	if n.final || n.run != was.run || n.version >= 2*was.version || k.retryAt.After(k.refreshAt) {
		return k.retryAt
	}
	return k.refreshAt
}

// startNewestModelTrial has the newest model judged, if it is time: the one that training has, or else it is pulled. A
// model is never pulled twice: training and predictions share what comes.
func (a *Agent) startNewestModelTrial() {
	k, now := &a.models, a.owner.Now()
	if k.rollout.Released.Present() {
		a.startRolloutTrial()
		return
	}
	hash, l := k.newest.ref.Hash, a.taskData.Announced()
	if a.cfg.Predict == nil || !k.newest.ref.Present() || k.newest.untrained() || k.stamp == "" || k.judging ||
		k.pinned || hash == k.lastJudgedHash || now.Before(k.adoptableAt()) || l == nil || l.CompiledTask == nil ||
		l.Hash != k.newest.task {
		return
	}
	if l.CompiledTask.Task.FinetuneSteps > 0 && a.blockMustRest() { // no training now
		return
	}
	if k.inUse != nil && k.inUse.Hash == hash && k.inUse.Run == k.newest.run {
		k.lastJudgedHash, k.lastJudged = hash, k.newest
		return
	}
	if a.base != nil && a.baseModelHash == hash {
		a.judgeAnnouncedModel(k.newest, a.base)
		return
	}
	if underway, is := a.fetch.Underway(fetch.Model); is { // when it is here, the newest is looked for again
		if underway == hash {
			k.pulling = k.newest
		}
		return
	}
	if a.core.Connected && !a.budget.Spent() && !a.cannotJudge(k.newest.run, k.newest.version) {
		a.fetchModel(k.newest.ref)
		k.pulling = k.newest
	}
}

// cannotJudge reports whether a model would be fetched in vain: the rows that are to judge it cannot be had now. It is
// wanted again later.
func (a *Agent) cannotJudge(run wire.RunID, version wire.ModelVersion) bool {
	if !a.trialOf(nil).rowsUnavailable {
		return false
	}
	a.models.retryAt = a.owner.Now().Add(modelRetryDelay)
	a.cfg.Observer.Observe(ModelJudged{Run: run, Version: version, Result: ModelUnjudged, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN()})
	return true
}

// handlePulledModel takes a model that was pulled, or that could not be had.
func (a *Agent) handlePulledModel(hash wire.Digest, w []float32, err error) {
	if err == nil {
		a.startEvaluationJob(hash, w)
	}
	k, of := &a.models, a.models.pulling
	if of.ref.Hash == hash {
		k.pulling = announcedModel{}
	} else {
		of = k.newest
	}
	switch now := a.owner.Now(); {
	case a.cfg.Predict == nil:
	case err != nil && of.ref.Hash == hash:
		k.retryAt = now.Add(modelRetryDelay)
	case err == nil && of.ref.Hash == hash && !of.untrained() && !k.judging && k.stamp != "" &&
		!now.Before(k.adoptableAt()):
		a.judgeAnnouncedModel(of, w)
	default:
		a.startNewestModelTrial()
	}
}

// neededBeyondTraining reports whether a model that is being fetched is needed for more than training.
func (a *Agent) neededBeyondTraining(hash wire.Digest) bool {
	return hash == a.models.pulling.ref.Hash || hash == a.evaluating.requestedModel.ref.Hash
}

// forgetFetchOf notes that a model is no longer fetched.
func (a *Agent) forgetFetchOf(hash wire.Digest) {
	if a.models.pulling.ref.Hash == hash {
		a.models.pulling = announcedModel{}
	}
}

// baseFromModelInUse returns the model in use if it is the one that training wants.
func (a *Agent) baseFromModelInUse(hash wire.Digest) []float32 {
	m, p := a.models.inUse, a.taskData.Prepared()
	if p != nil && (p.CompiledTask.HasPersonalPart() || p.CompiledTask.Task.FinetuneSteps > 0) {
		return nil // it is the device's own
	}
	if m == nil || m.Hash != hash || len(m.ParameterBytes) != 4*p.CompiledTask.Model.Architecture().Params() {
		return nil
	}
	w := make([]float32, len(m.ParameterBytes)/4)
	if wire.DecodeVector(w, m.ParameterBytes) != nil {
		return nil
	}
	return w
}

// judgeAnnouncedModel has the newest model judged, and taken if it is good.
func (a *Agent) judgeAnnouncedModel(of announcedModel, w []float32) {
	k, l := &a.models, a.taskData.Announced()
	if of.ref.Hash == k.lastJudgedHash || l == nil || l.CompiledTask == nil || l.Hash != of.task {
		return
	}
	data, hash := wire.AppendVector(nil, a.predictionParameters(l.CompiledTask, of.run, w)), of.ref.Hash
	if l.CompiledTask.HasPersonalPart() {
		hash = wire.BlobDigest(data)
	}
	m := modelfile.NewModel(&l.CompiledTask.Task, l.CompiledTask.Model.Architecture(), data, hash)
	m.Run, m.Version = of.run, of.version
	t := a.trialOf(m)
	t.tune = a.prepareFinetuning(of)
	a.runTrial(t, func(event ModelJudged) {
		now := a.owner.Now()
		switch event.Result {
		case ModelFailed, ModelUnjudged, ModelOtherPinned: // it is tried again
			k.lastJudgedHash, k.retryAt = wire.Digest{}, now.Add(modelRetryDelay)
		default:
			k.lastJudgedHash, k.lastJudged, k.refreshAt = of.ref.Hash, of, now.Add(a.cfg.Predict.Refresh)
		}
	})
}

// trialOf prepares the trial of a model, on the rows that are held out if they can be had.
func (a *Agent) trialOf(m *modelfile.Model) *modelTrial {
	t := &modelTrial{m: m, inUse: a.models.inUse, protectedModel: a.models.rollout.Released}
	p, l := a.taskData.Prepared(), a.taskData.Announced()
	if p != nil && p.LocalTask == l && a.taskData.Fits() && p.HeldOutRows != nil {
		t.heldOutRows, t.readErr = p.HeldOutRows, p.View.Err
		t.rowDescription = modelfile.NewModel(&p.CompiledTask.Task, p.CompiledTask.Model.Architecture(), nil,
			wire.Digest{})
	}
	hides := l != nil && l.CompiledTask != nil && l.RowsHiddenInTrainer()
	t.rowsUnavailable = t.heldOutRows == nil && a.cfg.HeldOutShare > 0 && t.inUse != nil && !hides
	return t
}

// runTrial has a model judged beside the owner and, if it is as good as the one in use, put into use. after follows in
// the owner's goroutine.
func (a *Agent) runTrial(t *modelTrial, after func(ModelJudged)) {
	a.models.judging = true
	a.models.jobs.Do(func() {
		event, hook := t.run(a.owner.Context(), &a.cfg)
		a.owner.RunOnLoop(func() {
			a.models.judging = false
			after(event)
			a.reportTrial(event, hook)
		})
	})
}

// reportTrial tells what became of a model.
func (a *Agent) reportTrial(event ModelJudged, hook error) {
	if event.Result != ModelOtherPinned {
		a.cfg.Observer.Observe(event)
	}
	if hook != nil {
		a.cfg.Observer.Observe(ModelHookFailed{hook})
	}
	a.rereadModelInUse(event.Result == ModelAdopted)
}

// modelsTickAt returns when the models want a tick.
func (a *Agent) modelsTickAt() (time.Time, bool) {
	k := &a.models
	if a.cfg.Predict == nil {
		return time.Time{}, false
	}
	at := k.activeModelCheckAt
	_, wanted := k.nextRolloutModel(a.cfg.ID)
	next := k.retryAt
	if k.newest.ref.Present() && !k.newest.untrained() && k.newest.ref.Hash != k.lastJudgedHash {
		wanted, next = true, k.adoptableAt()
	}
	if wanted && next.After(a.owner.Now()) && next.Before(at) {
		at = next
	}
	if a.cfg.Predict.Publish != nil && !k.forecastRunning && k.nextForecastAt.Before(at) {
		at = k.nextForecastAt
	}
	return at, true
}

// tickModels looks at the model in use, and for a new one.
func (a *Agent) tickModels(now time.Time) {
	if a.cfg.Predict == nil {
		return
	}
	if !now.Before(a.models.activeModelCheckAt) {
		a.rereadModelInUse(false)
	}
	a.startNewestModelTrial()
	a.startForecasts(now)
}

// rereadModelInUse reads the model in use beside the owner, if its file has changed.
func (a *Agent) rereadModelInUse(changed bool) {
	k := &a.models
	k.activeModelCheckAt = a.owner.Now().Add(activeModelCheckInterval)
	before := k.stamp
	if changed {
		before = ""
	}
	k.jobs.Do(func() {
		f, err := readActiveModel(&a.cfg, before)
		a.owner.RunOnLoop(func() {
			if f.stamp == before {
				if err != nil {
					a.cfg.Logger.Error("the models to predict with cannot be read", "err", err)
				}
				return
			}
			wasPinned := k.pinned
			k.pinned = f.pinned
			if k.stamp = f.stamp; err != nil {
				a.cfg.Logger.Error("the model in use cannot be read; a new one takes its place", "err", err)
			}
			was := k.inUse
			if k.inUse = f.m; f.m != nil && (!f.m.Same(was) || f.pinned != wasPinned) {
				a.cfg.Observer.Observe(ModelInUse{Run: f.m.Run, Version: f.m.Version, Task: f.m.Task, Since: f.since,
					Pinned: f.pinned})
			}
			a.startNewestModelTrial()
		})
	})
}

var (
	modelInUseVersion = observe.OptionalGauge("model_in_use_version",
		"Version of the model that the device predicts with.")
	modelInUseSince = observe.OptionalGauge("model_in_use_timestamp_seconds",
		"When that model came into use, also before this start, in Unix time.")
	modelHookFailures = observe.Counter("model_hook_failures_total", "Times that the command predict.hook failed.")
)

const modelHookCondition = "hook"

// ModelInUse: the device predicts with another model from now on.
type ModelInUse struct {
	Run     wire.RunID
	Version wire.ModelVersion
	Task    string
	Since   time.Time // when its file was installed, which may be before this start
	Pinned  bool      // by the device's owner
}

// Describe implements observe.Event.
func (e ModelInUse) Describe(d *observe.Description) {
	d.Set(modelInUseVersion, float64(e.Version))
	d.Set(modelInUseSince, observe.UnixSeconds(e.Since))
	d.Log(observe.Info, "model in use changed", "run", e.Run, "version", e.Version, "task", e.Task, "pinned", e.Pinned)
}

// ModelHookFailed: the command that is run after a model was put into use has failed. The model stays in use.
type ModelHookFailed struct{ Err error }

// Describe implements observe.Event. The next model that is put into use resolves the condition.
func (e ModelHookFailed) Describe(d *observe.Description) {
	d.Inc(modelHookFailures)
	d.Log(observe.Error, "predict.hook failed", "err", e.Err)
	d.Fail(modelHookCondition, fmt.Sprintf("predict.hook failed: %v", e.Err),
		"correct the command in predict.hook; agentd runs it again with the next model")
}
