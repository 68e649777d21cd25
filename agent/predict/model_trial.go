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
	newModel *modelfile.Model
	inUse    *modelfile.Model // model in use; nil if the device uses none
	// held-out rows, standardised as the task requires; nil if there are none
	heldOutRows     *learner.Samples[float32]
	readErr         func() error     // returns an error if the held-out rows could not be read
	rowDescription  *modelfile.Model // model without parameters that describes the held-out rows
	rowsUnavailable bool             // true if held-out rows exist but are unavailable now
	isRollback      bool             // true if the model in use was withdrawn; skips the comparison
	protectedModel  wire.ModelRef    // model that must not be deleted from the state folder
	// finetune adapts the new model to the device's data before the comparison. Nil means no fine-tuning.
	finetune func(context.Context, *modelfile.Model) error
	folder   state.Folder
	cfg      *Config
}

// run compares the new model with the model in use and activates it if it is good enough. hookErr is the error of
// Config.OnModelActivated.
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

// compareWithModelInUse compares the new model with the model in use on the held-out rows. It skips the comparison if
// their columns differ.
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
	// Use the same random rows for both models.
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

// isWorse reports whether the risk of a new model exceeds old, the risk of the model in use, by more than margin·|old|.
// A risk may be negative.
func isWorse(risk, old, margin float64) bool { return risk > old+margin*math.Abs(old) }

// heldOutRisk returns the mean risk of a model on the held-out rows, without the L2 penalty. The result ok is false if
// the model cannot be compared.
func (t *modelTrial) heldOutRisk(of *modelfile.Model) (risk float64, ok bool, err error) {
	w, err := t.restandardizedParameters(of)
	if w == nil || err != nil {
		return 0, false, err
	}
	a := of.Architecture
	a.Ridge, a.HuberDelta = 0, t.rowDescription.Architecture.HuberDelta
	m, err := learner.NewModel[float32](a) // Use a separate instance, because training may run concurrently.
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
		w = nil // Only one of the models uses standardisation.
	}
	if errors.Is(err, learner.ErrNoBias) {
		return nil, nil
	}
	return w, err
}

// activateNewModel stores the new model and puts it into use, unless the device's owner has pinned another model.
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
	contentStamp string // changes whenever the content of the file changes
	model        *modelfile.Model
	modifiedAt   time.Time
	isPinned     bool
}

// readActiveModel reads the file of the model in use. It skips the file if the file's content stamp still equals
// before.
func readActiveModel(folder state.Folder, before string) (activeModelFile, error) {
	info, err := folder.Disk.Lstat(modelfile.ActiveModelPath(folder.Dir))
	if err != nil {
		return activeModelFile{contentStamp: "none"}, nil // The file is missing or unreadable, so wait for a new model.
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

// JudgmentResult is the result of comparing a new model with the model in use. It is used as a metric label.
type JudgmentResult string

// Possible results of comparing a new model with the model in use.
const (
	Adopted JudgmentResult = "taken"
	// the model's risk exceeds the risk of the model in use by more than the margin.
	Worse     JudgmentResult = "worse"
	NotFinite JudgmentResult = "not_finite" // the model's parameters or risk are not finite
	Unjudged  JudgmentResult = "blind"      // no rows are available for the comparison; the agent retries
	// the comparison failed, for example because of a disk error; the agent retries.
	Failed      JudgmentResult = "failed"
	OtherPinned JudgmentResult = "pinned" // the device's owner has pinned another model; this result is not reported
)

// JudgmentResults returns all results that are reported. The metrics use them as label values.
func JudgmentResults() []JudgmentResult {
	return []JudgmentResult{Adopted, Worse, NotFinite, Unjudged, Failed}
}

var (
	judgedModels = observe.CounterByLabel("models_judged_total",
		"Number of new models, by result: adopted, worse on the held-out rows, not finite, not judged (blind) or not "+
			"stored (failed).",
		"result", observe.NamesAsStrings(JudgmentResults()))
	judgedModelRisk = observe.OptionalGauge("model_judged_risk",
		"Risk (mean loss) of the newest judged model on the held-out rows.")
	riskOfModelInUse = observe.OptionalGauge("model_in_use_risk",
		"Risk (mean loss) of the model in use on the held-out rows, at the time when the newest model was judged.")
)

// ModelJudged reports that the agent has compared a new model with the model in use.
type ModelJudged struct {
	Run     wire.RunID
	Version wire.ModelVersion
	Result  JudgmentResult
	// HeldOutRows is the number of rows in the comparison, at most task.MaxRiskSampleRows. The value 0 means that the
	// models were not compared.
	HeldOutRows      int
	Risk             float64 // risk of the new model on the held-out rows; NaN if it was not compared
	RiskOfModelInUse float64 // risk of the model in use on the same rows; NaN without a comparable model in use
	Err              error   // reason of the failure, if Result is Failed
}

// Describe implements observe.Event. The result OtherPinned is never reported.
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
		d.Log(observe.Warn, "new model was judged and not adopted", append(attributes, "reason", e.Result)...)
	}
	e.describeCondition(d)
}

func (e ModelJudged) describeCondition(d *observe.EventDescription) {
	const condition = "model"
	name := fmt.Sprintf("model %d/%d was not adopted: ", e.Run, e.Version)
	switch e.Result {
	case Worse:
		d.RaiseCondition(condition,
			name+fmt.Sprintf("the new model's risk on the %d held-out rows is %.4g, but the risk of the model in use "+
				"is %.4g", e.HeldOutRows, e.Risk, e.RiskOfModelInUse), "raise predict.margin to accept a model with "+
				"a slightly higher risk")
	case NotFinite:
		d.RaiseCondition(condition, name+"the parameters or the risk of the model are not finite",
			"lower task.step_size at the coordinator")
	case Unjudged:
		d.RaiseCondition(condition, name+"the held-out rows for the evaluation cannot be read",
			"check the data with `agentd data check`; the agent retries every minute")
	case Failed:
		d.RaiseCondition(condition, name+fmt.Sprint(e.Err),
			"check the disk with `agentd doctor`; the agent retries every minute")
	case Adopted:
		d.ResolveCondition(condition)
		// If the command fails again, the event ActivationCommandFailed is reported again.
		d.ResolveCondition(modelHookCondition)
	case OtherPinned:
	}
}
