package predict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// modelTrial decides whether a new model is put into use.
type modelTrial struct {
	newModel        *modelfile.Model
	inUse           *modelfile.Model          // model in use; nil if none
	heldOutRows     *learner.Samples[float32] // rows standardised as the task requires; nil if none
	readErr         func() error              // returns the error of reading the held-out rows
	rowDescription  *modelfile.Model          // describes the held-out rows; has no parameters
	rowsUnavailable bool                      // rows are held out but not available now
	isRollback      bool                      // the model in use was withdrawn: adopt this one uncompared
	protectedModel  wire.ModelRef             // model that must be kept
	// finetune fine-tunes the model before it is judged; nil means no fine-tuning.
	finetune func(context.Context, *modelfile.Model) error
	folder   state.Folder
	cfg      *Config
}

// run judges the model and puts it into use if it passes. hookErr is the error of Config.OnModelActivated.
func (t *modelTrial) run(ctx context.Context) (event ModelJudged, hookErr error) {
	event = ModelJudged{Run: t.newModel.Run, Version: t.newModel.Version, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN()}
	if t.rowsUnavailable && !t.isRollback {
		event.Result = Unjudged
		return event, nil
	}
	var err error
	if t.finetune != nil {
		err = t.finetune(ctx, t.newModel)
	}
	if err == nil {
		err = t.compareWithModelInUse(&event, t.cfg.MaxRiskIncrease)
	}
	if err != nil {
		event.Result, event.Err = Failed, err
	}
	if event.Result != Adopted {
		return event, nil
	}
	if event.Result, event.Err = t.activateNewModel(); event.Result == Adopted && t.cfg.OnModelActivated != nil {
		hookErr = t.cfg.OnModelActivated(ctx, t.newModel)
	}
	return event, hookErr
}

// compareWithModelInUse compares the model with the model in use on the held-out rows. Models for different columns are
// not compared.
func (t *modelTrial) compareWithModelInUse(event *ModelJudged, margin float64) error {
	event.Result = Adopted
	if w, err := t.newModel.Parameters(); err != nil {
		return err
	} else if learner.FirstNonFiniteIndex(w) >= 0 {
		event.Result = NotFinite
		return nil
	}
	if t.heldOutRows == nil || t.isRollback {
		return nil
	}
	// same rows for both models
	t.heldOutRows = t.heldOutRows.RandomSubset(task.MaxRiskSampleRows, task.AgentRand(uint64(t.newModel.Run), 0, 0))
	risk, ok, err := t.heldOutRisk(t.newModel)
	if !ok || err != nil {
		return err
	}
	event.HeldOutRows, event.Risk = t.heldOutRows.Len(), risk
	if risk-risk != 0 {
		event.Result = NotFinite
		return nil
	}
	old, ok, err := t.heldOutRisk(t.inUse)
	if !ok || err != nil {
		return err
	}
	if event.RiskOfModelInUse = old; isWorse(event.Risk, old, margin) {
		event.Result = Worse
	}
	return nil
}

// isWorse reports whether a risk exceeds the risk old of the model in use by more than margin·|old|. A risk may be
// negative.
func isWorse(risk, old, margin float64) bool { return risk > old+margin*math.Abs(old) }

// heldOutRisk returns the mean risk of a model on the held-out rows, without the ridge. ok is false if the model cannot
// be compared.
func (t *modelTrial) heldOutRisk(of *modelfile.Model) (risk float64, ok bool, err error) {
	w, err := t.restandardizedParameters(of)
	if w == nil || err != nil {
		return 0, false, err
	}
	a := of.Architecture
	a.Ridge, a.HuberDelta = 0, t.rowDescription.Architecture.HuberDelta
	m, err := learner.NewModel[float32](a) // a separate model, since training may run concurrently
	if err != nil {
		return 0, false, err
	}
	m.SetReportedRiskUnits(t.rowDescription.Standardization)
	return m.Score(w, t.heldOutRows).Risk, true, t.readErr()
}

// restandardizedParameters returns the parameters of a model, converted to the standardisation of the held-out rows. It
// returns nil if the model cannot be compared.
func (t *modelTrial) restandardizedParameters(of *modelfile.Model) ([]float32, error) {
	if of == nil || !of.IsComparableWith(t.rowDescription) {
		return nil, nil
	}
	w, err := of.Parameters()
	from, to := of.Standardization, t.rowDescription.Standardization
	if err != nil || from.Same(to) {
		return w, err
	}
	m, err := learner.NewModel[float32](of.Architecture)
	if err == nil && len(from.Mean) == len(to.Mean) {
		err = m.RestandardizeParameters(w, from, to)
	} else {
		w = nil // one of the models has no standardisation
	}
	if errors.Is(err, learner.ErrNoBias) {
		return nil, nil
	}
	return w, err
}

// activateNewModel stores the model and puts it into use, unless the device's owner has pinned another one.
func (t *modelTrial) activateNewModel() (result JudgmentResult, err error) {
	if t.cfg.LockKeptModels != nil {
		unlock, err := t.cfg.LockKeptModels()
		if err != nil {
			return Failed, err
		}
		defer func() {
			if failed := unlock(); failed != nil {
				result, err = Failed, failed
			}
		}()
	}
	k, err := modelfile.OpenKeptModels(t.folder.Disk, t.folder.Dir)
	switch {
	case err != nil:
		return Failed, err
	case k.IsPinned():
		return OtherPinned, nil
	}
	if err := k.Install(t.newModel, t.cfg.MaxKeptModels, t.protectedModel); err != nil {
		return Failed, err
	}
	return Adopted, nil
}

// activeModelFile describes the file of the model in use.
type activeModelFile struct {
	contentStamp string // identifies the content of the file
	model        *modelfile.Model
	modifiedAt   time.Time
	isPinned     bool
}

// readActiveModel reads the model in use. It skips the file if its content stamp is still before.
func readActiveModel(folder state.Folder, before string) (activeModelFile, error) {
	info, err := folder.Disk.Lstat(modelfile.ActiveModelPath(folder.Dir))
	if err != nil {
		return activeModelFile{contentStamp: "none"}, nil // no model, or a disk error: a new model will follow
	}
	k, err := modelfile.OpenKeptModels(folder.Disk, folder.Dir)
	if err != nil {
		return activeModelFile{contentStamp: before}, err
	}
	f := activeModelFile{modifiedAt: info.ModTime(), isPinned: k.IsPinned()}
	if f.contentStamp = fmt.Sprint(f.modifiedAt.UnixNano(), info.Size(), f.isPinned); f.contentStamp == before {
		return f, nil
	}
	f.model, err = k.ActiveModel()
	if errors.Is(err, store.ErrNoModel) {
		err = nil
	}
	return f, err
}

// JudgmentResult is the result of judging a new model on the device. It is used as a metric label.
type JudgmentResult string

// Results of judging a model.
const (
	Adopted     JudgmentResult = "taken"
	Worse       JudgmentResult = "worse"      // worse than the model in use, by more than the margin
	NotFinite   JudgmentResult = "not_finite" // parameters or risk are not finite
	Unjudged    JudgmentResult = "blind"      // no rows to judge it on now; the agent retries
	Failed      JudgmentResult = "failed"     // for example a disk error; the agent retries
	OtherPinned JudgmentResult = "pinned"     // the device's owner has pinned another model; not reported
)

// JudgmentResults returns the reported results, for closed label sets.
func JudgmentResults() []JudgmentResult {
	return []JudgmentResult{Adopted, Worse, NotFinite, Unjudged, Failed}
}

var (
	judgedModels = observe.CounterByLabel("models_judged_total",
		"New models by result: taken into use, worse on the held-out rows, not finite, not judged (blind) or not "+
			"stored (failed).",
		"result", observe.NamesAsStrings(JudgmentResults()))
	judgedModelRisk = observe.OptionalGauge("model_judged_risk",
		"Risk of the newest judged model on the held-out rows.")
	riskOfModelInUse = observe.OptionalGauge("model_in_use_risk",
		"Risk of the model in use on the held-out rows, when the newest model was judged.")
)

// ModelJudged reports that the agent has compared a new model with the model in use.
type ModelJudged struct {
	Run     wire.RunID
	Version wire.ModelVersion
	Result  JudgmentResult
	// HeldOutRows is the number of rows used, at most task.MaxRiskSampleRows. 0 means that the model was not judged.
	HeldOutRows      int
	Risk             float64 // risk of the new model on these rows; NaN if not judged
	RiskOfModelInUse float64 // risk on these rows; NaN without a comparable model in use
	Err              error   // set if Result is Failed
}

// Describe implements observe.Event. OtherPinned is not reported.
func (e ModelJudged) Describe(d *observe.EventDescription) {
	d.IncCounter(judgedModels, string(e.Result))
	d.SetGauge(judgedModelRisk, e.Risk)
	d.SetGauge(riskOfModelInUse, e.RiskOfModelInUse)
	attributes := []any{"run", e.Run, "version", e.Version, "rows", e.HeldOutRows, "risk",
		observe.RoundToFourDigits(e.Risk),
		"risk_in_use", observe.RoundToFourDigits(e.RiskOfModelInUse)}
	switch e.Result {
	case Adopted:
		d.Log(observe.Info, "new model adopted", attributes...)
	case Failed:
		d.Log(observe.Error, "cannot adopt a new model", append(attributes, "err", e.Err)...)
	case Worse, NotFinite, Unjudged, OtherPinned:
		d.Log(observe.Warn, "new model not adopted", append(attributes, "reason", e.Result)...)
	}
	e.describeCondition(d)
}

func (e ModelJudged) describeCondition(d *observe.EventDescription) {
	const condition = "model"
	name := fmt.Sprintf("model %d/%d was not adopted: ", e.Run, e.Version)
	switch e.Result {
	case Worse:
		d.RaiseCondition(condition,
			name+fmt.Sprintf("its risk on the %d held-out rows is %.4g, but the risk of the model in use is "+
				"%.4g", e.HeldOutRows, e.Risk, e.RiskOfModelInUse), "raise predict.margin to accept such a model")
	case NotFinite:
		d.RaiseCondition(condition, name+"its parameters or its risk are not finite",
			"lower task.step_size at the coordinator")
	case Unjudged:
		d.RaiseCondition(condition, name+"the held-out rows for its evaluation cannot be read",
			"check the data with `agentd data check`; the agent retries every minute")
	case Failed:
		d.RaiseCondition(condition, name+fmt.Sprint(e.Err),
			"check the disk with `agentd doctor`; the agent retries every minute")
	case Adopted:
		d.ResolveCondition(condition)
		d.ResolveCondition(modelHookCondition) // ActivationCommandFailed follows if the command fails again
	case OtherPinned:
	}
}
