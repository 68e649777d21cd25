package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// modelTrial is a new model on its way into use.
type modelTrial struct {
	m               *modelfile.Model
	inUse           *modelfile.Model          // nil if there is none
	heldOutRows     *learner.Samples[float32] // as the task standardises them; nil if there are none
	readErr         func() error              // why some could not be read
	rowDescription  *modelfile.Model          // describes these rows; without parameters
	rowsUnavailable bool                      // rows are to be held out, and cannot be had now
	isRollback      bool                      // the model in use was withdrawn: whatever it is, this one is taken
	protectedModel  wire.ModelName            // stays among the models that are kept
	tune            *finetuning               // makes it the device's own before that; nil = it stays as it is
}

// run judges the model, and puts it into use. The error is that of Predictions.Activated.
func (t *modelTrial) run(ctx context.Context, c *Config) (event ModelJudged, hook error) {
	event = ModelJudged{Run: t.m.Run, Version: t.m.Version, Risk: math.NaN(), RiskOfModelInUse: math.NaN()}
	if t.rowsUnavailable && !t.isRollback {
		event.Result = ModelUnjudged
		return event, nil
	}
	err := t.tune.run(ctx, t.m)
	if err == nil {
		err = t.judge(&event, c.Predict.MaxRiskIncrease)
	}
	if err != nil {
		event.Result, event.Err = ModelFailed, err
	}
	if event.Result != ModelAdopted {
		return event, nil
	}
	if event.Result, event.Err = t.activateModel(c); event.Result == ModelAdopted && c.Predict.Activated != nil {
		hook = c.Predict.Activated(ctx, t.m)
	}
	return event, hook
}

// judge holds the model against the one in use, on the rows that are held out. One that was trained for other columns
// is not compared.
func (t *modelTrial) judge(event *ModelJudged, margin float64) error {
	event.Result = ModelAdopted
	if w, err := modelParameters(t.m); err != nil {
		return err
	} else if learner.FirstNotFinite(w) >= 0 {
		event.Result = ModelNotFinite
		return nil
	}
	if t.heldOutRows == nil || t.isRollback {
		return nil
	}
	t.heldOutRows = t.heldOutRows.Subset(task.RiskRows, task.AgentRand(uint64(t.m.Run), 0, 0)) // the same for both
	risk, ok, err := t.risk(t.m)
	if !ok || err != nil {
		return err
	}
	event.HeldOutRows, event.Risk = t.heldOutRows.Len(), risk
	if risk-risk != 0 {
		event.Result = ModelNotFinite
		return nil
	}
	old, ok, err := t.risk(t.inUse)
	if !ok || err != nil {
		return err
	}
	if event.RiskOfModelInUse = old; event.Risk > old*(1+margin) {
		event.Result = ModelWorse
	}
	return nil
}

// modelParameters returns the parameters of a model.
func modelParameters(m *modelfile.Model) ([]float32, error) {
	w := make([]float32, len(m.ParameterBytes)/4)
	return w, wire.DecodeVector(w, m.ParameterBytes)
}

// risk is the mean risk of a model on the rows that are held out, without a ridge: it is of the data alone. It is not
// ok if the model cannot be compared.
func (t *modelTrial) risk(of *modelfile.Model) (risk float64, ok bool, err error) {
	w, err := t.restandardized(of)
	if w == nil || err != nil {
		return 0, false, err
	}
	a := of.Architecture
	a.Ridge, a.HuberDelta = 0, t.rowDescription.Architecture.HuberDelta
	m, err := learner.NewModel[float32](a) // training uses another one meanwhile
	if err != nil {
		return 0, false, err
	}
	m.SetReportUnits(t.rowDescription.Standardization)
	return m.Score(w, t.heldOutRows).Risk, true, t.readErr()
}

// restandardized returns a model for rows that are standardised as those held out; nil if it cannot be compared.
func (t *modelTrial) restandardized(of *modelfile.Model) ([]float32, error) {
	if of == nil || !of.ComparableWith(t.rowDescription) {
		return nil, nil
	}
	w, err := modelParameters(of)
	from, to := of.Standardization, t.rowDescription.Standardization
	if err != nil || from.Same(to) {
		return w, err
	}
	m, err := learner.NewModel[float32](of.Architecture)
	if err == nil && len(from.Mean) == len(to.Mean) {
		err = m.Restandardize(w, from, to)
	} else {
		w = nil // one has no standardisation
	}
	if errors.Is(err, learner.ErrNoBias) {
		return nil, nil
	}
	return w, err
}

// activateModel keeps the model, and puts it into use, unless the device's owner has pinned another one.
func (t *modelTrial) activateModel(c *Config) (result ModelResult, err error) {
	if c.Predict.Lock != nil {
		unlock, err := c.Predict.Lock()
		if err != nil {
			return ModelFailed, err
		}
		defer func() {
			if failed := unlock(); failed != nil {
				result, err = ModelFailed, failed
			}
		}()
	}
	k, err := modelfile.OpenKeptModels(c.Disk, c.Dir)
	switch {
	case err != nil:
		return ModelFailed, err
	case k.Pinned():
		return ModelOtherPinned, nil
	}
	if err := k.Install(t.m, c.Predict.MaxKeptModels, t.protectedModel); err != nil {
		return ModelFailed, err
	}
	return ModelAdopted, nil
}

// activeModelFile is the model in use as its file has it.
type activeModelFile struct {
	stamp  string // of the file
	m      *modelfile.Model
	since  time.Time
	pinned bool
}

// readActiveModel reads the model in use, unless its file is the one with that stamp.
func readActiveModel(c *Config, before string) (activeModelFile, error) {
	info, err := c.Disk.Lstat(modelfile.ActivePath(c.Dir))
	if err != nil {
		return activeModelFile{stamp: "none"}, nil // there is none, or the disk fails: a new model comes
	}
	k, err := modelfile.OpenKeptModels(c.Disk, c.Dir)
	if err != nil {
		return activeModelFile{stamp: before}, err
	}
	f := activeModelFile{since: info.ModTime(), pinned: k.Pinned()}
	if f.stamp = fmt.Sprint(f.since.UnixNano(), info.Size(), f.pinned); f.stamp == before {
		return f, nil
	}
	f.m, err = k.Active()
	if errors.Is(err, store.ErrNoModel) {
		err = nil
	}
	return f, err
}

var (
	judgedModels = observe.CounterByLabel("models_judged_total",
		"New models, by what became of them: taken into use, or not, since they are worse than the one in use on the "+
			"held-out rows, are not finite, could not be judged (blind) or stored (failed).",
		"result", observe.Strings(ModelResults()))
	judgedModelRisk = observe.OptionalGauge("model_judged_risk",
		"Risk of the newest model that was judged, on the held-out rows.")
	riskOfModelInUse = observe.OptionalGauge("model_in_use_risk",
		"Risk of the model that was in use when the newest one was judged, on the same rows.")
)

// ModelJudged: the agent has compared a new model with the model in use.
type ModelJudged struct {
	Run              wire.RunID
	Version          wire.ModelVersion
	Result           ModelResult
	HeldOutRows      int     // number of rows on which it was judged, at most task.RiskRows; 0 = it was not judged
	Risk             float64 // on these rows; NaN if it was not judged
	RiskOfModelInUse float64 // on these rows; NaN if there is no model to compare with
	Err              error   // with ModelFailed
}

// Describe implements observe.Event. ModelOtherPinned is not reported.
func (e ModelJudged) Describe(d *observe.Description) {
	d.Inc(judgedModels, string(e.Result))
	d.Set(judgedModelRisk, e.Risk)
	d.Set(riskOfModelInUse, e.RiskOfModelInUse)
	attributes := []any{"run", e.Run, "version", e.Version, "rows", e.HeldOutRows, "risk", observe.Rounded(e.Risk),
		"risk_in_use", observe.Rounded(e.RiskOfModelInUse)}
	switch e.Result {
	case ModelAdopted:
		d.Log(observe.Info, "new model adopted", attributes...)
	case ModelFailed:
		d.Log(observe.Error, "cannot adopt a new model", append(attributes, "err", e.Err)...)
	case ModelWorse, ModelNotFinite, ModelUnjudged, ModelOtherPinned:
		d.Log(observe.Warn, "new model not adopted", append(attributes, "reason", e.Result)...)
	}
	e.describeCondition(d)
}

func (e ModelJudged) describeCondition(d *observe.Description) {
	const condition = "model"
	name := fmt.Sprintf("model %d/%d is not in use: ", e.Run, e.Version)
	switch e.Result {
	case ModelWorse:
		d.Fail(condition,
			name+fmt.Sprintf("its risk on the %d held-out rows is %.4g, and the risk of the model in use "+
				"is %.4g", e.HeldOutRows, e.Risk, e.RiskOfModelInUse), "raise predict.margin to accept such a model")
	case ModelNotFinite:
		d.Fail(condition, name+"it has numbers that are not finite", "lower task.step_size at the coordinator")
	case ModelUnjudged:
		d.Fail(condition, name+"the held-out rows to judge it on cannot be read now",
			"see the data's errors with `agentd data check`; the agent tries again every minute")
	case ModelFailed:
		d.Fail(condition, name+fmt.Sprint(e.Err),
			"examine the disk with `agentd doctor`; the agent tries again every minute")
	case ModelAdopted:
		d.Resolve(condition)
		d.Resolve(modelHookCondition) // ModelHookFailed follows if the command fails again
	case ModelOtherPinned:
	}
}
