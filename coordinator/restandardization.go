package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// requestFile is in the state folder while a new standardisation is asked for.
const requestFile = "restandardize"

// restandardizeRequest names the run that is to end; for a later one it is void, so that it is obeyed once, whenever a
// crash comes.
type restandardizeRequest struct{ Run wire.RunID }

// RequestRestandardization asks the coordinator with this state folder, which may be running, to hold a statistics
// round when it starts next: in a new run that goes on with the newest model. It returns the run that ends then.
func RequestRestandardization(dir string) (wire.RunID, error) {
	d := runs.NewFolder(store.Machine, dir)
	record, found, err := d.LoadRecord()
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("state folder %s: no run has been begun there", dir)
	case record.Plan.Kind == wire.KindStatistics:
		return 0, fmt.Errorf("state folder %s: the run is still holding its statistics round", dir)
	}
	body, err := json.Marshal(restandardizeRequest{record.Run})
	if err != nil {
		return 0, err
	}
	return record.Run, d.Disk.SaveRecord(filepath.Join(dir, requestFile), runs.RequestVersion, body)
}

// restandardizeRequested reports whether a new standardisation is asked for in the record's run.
func (c *Coordinator) restandardizeRequested(record round.Record) bool {
	var r restandardizeRequest
	body, err := c.stateFolder.LoadVersionedFile(requestFile, runs.MaxRecord, runs.RequestVersion)
	if errors.Is(err, store.ErrNoRecord) {
		return false
	}
	if err == nil {
		err = c.stateFolder.ParseJSONFile(requestFile, body, &r)
	}
	switch {
	case err != nil:
		c.cfg.Logger.Error("the request for a new standardisation cannot be read; ask again with `coordinator "+
			"restandardize`", "err", err)
	case r.Run != record.Run || record.Plan.Kind != wire.KindTraining:
		// it was obeyed, or another run has begun in between
	case !c.cfg.Standardize:
		c.cfg.Logger.Error("a new standardisation is asked for, and task.standardize is false: set it to true, or "+
			"remove the file", "file", c.stateFolder.Path(requestFile))
	default:
		return true
	}
	return false
}

// restandardizedOrigin returns the origin of a run that goes on with a model of the run before in a standardisation of
// its own. The flag --from of the run before stays obeyed.
func (c *Coordinator) restandardizedOrigin(model string) (runs.Origin, error) {
	given := c.stateFolder.Origin.Given
	o, _, _, err := c.readOrigin(model, 0)
	var refused *runs.StateError
	if errors.As(err, &refused) {
		refused.Path = "a new standardisation of model " + model
		refused.Remedy = "remove " + c.stateFolder.Path(requestFile) + " to go on with the present one"
	}
	o.Given, o.Restandardized = given, true
	return o, err
}

// modelBeforeStatistics returns the model that a restandardised run goes on with, and the standardisation in which it
// is expressed; nil for another run, and where the model is lost. The error is one that may pass.
func (w *modelState) modelBeforeStatistics() ([]float32, learner.Standardization, error) {
	o := w.stateFolder.Origin
	if !o.Restandardized {
		return nil, learner.Standardization{}, nil
	}
	model, from, err := w.readOriginModel(o)
	if store.IsMissingOrDamaged(err) || errors.Is(err, fs.ErrNotExist) {
		w.cfg.Logger.Error("the model to go on with is lost; the run begins from an initial one", "model", o.Model,
			"err", err)
		return nil, from, nil
	}
	return model, from, err
}

// modelAfterStatistics returns w_0 after the statistics round: the earlier model in the task's standardisation, or,
// without one, an initial model.
func (w *modelState) modelAfterStatistics(model []float32, from learner.Standardization) []float32 {
	if model == nil {
		return w.initialModel()
	}
	p := w.compiledTask
	model = p.AllParameters(model, p.InitialOwn(w.cfg.Round.Seed))
	switch err := p.Model.Restandardize(model, from, p.Standardization()); {
	case errors.Is(err, learner.ErrNoBias):
		w.cfg.Logger.Warn("the model has no biases to take up the columns' new means: it begins a little off",
			"model", w.stateFolder.Origin.Model)
	case err != nil:
		w.cfg.Logger.Error("the model cannot be expressed in the new standardisation; the run begins from an initial "+
			"one", "model", w.stateFolder.Origin.Model, "err", err)
		return w.initialModel()
	}
	return p.Shared(model)
}

// initialModelBytes returns w_0 as it is announced: the tensors of Config.Initial, if there are any, but for those that
// are each agent's own.
func (w *modelState) initialModelBytes() (data []byte, err error) {
	path := w.cfg.InitialModelPath
	if path == "" {
		return wire.AppendVector(nil, w.initialModel()), nil
	}
	file, err := w.stateFolder.Disk.ReadFile(path)
	var m *runs.StoredModel
	if err == nil {
		m, err = runs.DecodeModel(path, file)
	}
	if err == nil {
		data, err = m.StartVector(w.compiledTask.Task.External.Tensors)
	}
	whole := make([]float32, len(data)/4)
	if err == nil {
		err = wire.DecodeVector(whole, data)
	}
	if err != nil {
		return nil, fmt.Errorf("task.model.initial: %s: %w", path, err)
	}
	return wire.AppendVector(nil, w.compiledTask.Shared(whole)), nil
}

// initialModel returns what agents share of w_0. What is theirs they make themselves, of the same seed.
func (w *modelState) initialModel() []float32 {
	return w.compiledTask.Shared(w.compiledTask.Initial(w.cfg.Round.Seed))
}

// readOriginModel returns the origin's model, and the standardisation in which it is expressed.
func (w *modelState) readOriginModel(o runs.Origin) ([]float32, learner.Standardization, error) {
	none := learner.Standardization{}
	run, version, ok := runs.ParseModelName(o.Model, 0)
	if !ok {
		return nil, none, fmt.Errorf("%q is not a model of the state folder", o.Model)
	}
	models, err := w.stateFolder.ModelsOf(run)
	if err != nil {
		return nil, none, err
	}
	m, err := w.stateFolder.ReadModel(models, version)
	if err != nil {
		return nil, none, err
	}
	data := m.EncodeVector(w.compiledTask.Schema(wire.KindTraining))
	model := make([]float32, len(data)/4)
	return model, learner.Standardization{Mean: m.Standardization.Mean, Scale: m.Standardization.Scale},
		wire.DecodeVector(model, data)
}
