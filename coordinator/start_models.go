package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

func (c *Coordinator) startModelReader() startModelReader {
	return startModelReader{&c.cfg, c.stateFolder}
}

// StartFromCurrentModel is the value of Config.StartModel that selects the current model of the run in the state
// folder.
const StartFromCurrentModel = "present"

// startModelReader reads models with which a run may begin.
type startModelReader struct {
	cfg    *Config
	folder *runs.StateFolder
}

// readNamedModel reads the model with the given name (see Config.StartModel). It returns the model as the initial model
// w_0 of the configured task, and the task with the model's standardisation. newest is the run that a VERSION without
// RUN refers to.
func (m startModelReader) readNamedModel(from string, newest wire.RunID) (runs.RunOrigin, []byte, wire.Task, error) {
	o := runs.RunOrigin{GivenStartModel: from, Model: from}
	run, version, ok := runs.ParseModelName(from, newest)
	var stored *runs.StoredModel
	var err error
	if ok {
		o.Model = runs.ModelName(run, version)
		stored, err = m.folder.ReadModelOfRun(run, version)
	} else {
		stored, err = m.folder.ReadModelFile(from)
	}
	return m.resolveStartModel(o, stored, err, runs.StateError{Path: "--from " + from,
		Remedy: "list the models on disk with `coordinator task runs` and `coordinator model list`"})
}

// readInitialModel reads the model in Config.InitialModelPath. It returns the same values as readNamedModel.
func (m startModelReader) readInitialModel() (runs.RunOrigin, []byte, wire.Task, error) {
	path := m.cfg.InitialModelPath
	stored, err := m.folder.ReadModelFile(path)
	return m.resolveStartModel(runs.RunOrigin{Model: path}, stored, err,
		runs.StateError{Path: "task.model.initial: " + path,
			Remedy: "specify a safetensors file that fits the task, for example from `coordinator model export`, or " +
				"remove task.model.initial"})
}

// resolveStartModel converts a stored model to the results of readNamedModel. err is the error that occurred while
// reading the model. If no run can begin with the model, resolveStartModel returns the error refused, completed with
// the problem.
func (m startModelReader) resolveStartModel(o runs.RunOrigin, stored *runs.StoredModel, err error,
	refused runs.StateError) (runs.RunOrigin,
	[]byte, wire.Task, error) {
	t := m.cfg.Task
	refuse := func(err error) (runs.RunOrigin, []byte, wire.Task, error) {
		refused.Problem, refused.Err = err.Error(), err
		return o, nil, t, &refused
	}
	if err != nil {
		return refuse(err)
	}
	p, err := task.Compile[float32](t)
	if err != nil {
		return refuse(err)
	}
	if t.Standardization, err = standardizationOfStartModel(stored, p, m.cfg.Standardize,
		m.cfg.FeatureClipDeviations); err != nil {
		return refuse(err)
	}
	if err := task.Validate[float32](t); err != nil {
		return refuse(fmt.Errorf("invalid metadata: %w", err))
	}
	data, err := stored.VectorForNewRun(p.UpdateSchema(wire.KindTraining))
	if err != nil {
		return refuse(err)
	}
	o.Digest = wire.BlobDigest(data)
	return o, data, t, nil
}

// standardizationOfStartModel returns the standardisation stored with a model. It returns an error if the model does
// not fit the configured task.
func standardizationOfStartModel(m *runs.StoredModel, p *task.CompiledTask[float32], standardize bool,
	clip float64) (wire.Standardization, error) {
	none := wire.Standardization{}
	features, err := json.Marshal(p.Task.Features)
	if err != nil {
		return none, err
	}
	a := p.Model.Architecture()
	wants := map[string]string{"features": string(features), "target": p.Task.TargetColumn, "risk": string(a.Risk)}
	if a.LayerCount() > 1 {
		wants["activation"] = string(a.Activation)
	}
	if pool := a.Convolution.PoolSteps; pool > 0 { // the tensors define the rest of the architecture
		wants["pool"] = strconv.Itoa(pool)
	}
	for _, key := range slices.Sorted(maps.Keys(wants)) {
		if has := m.Metadata[key]; has != "" && has != wants[key] { // the value is absent in files of other programs
			return none, fmt.Errorf("the model was made with %s %s, but the configured task has %s", key, has,
				wants[key])
		}
	}
	switch has := len(m.Standardization.Mean) > 0; {
	case has && !standardize:
		return none, errors.New("the model expects standardised columns (its file contains means and scales), but " +
			"task.standardize is false: set it to true")
	case !has && standardize:
		return none, errors.New("task.standardize is true, but the model file contains no column means and scales: " +
			"set task.standardize to false, or add both to the file's metadata")
	case !has:
		return none, nil
	}
	st := m.Standardization
	st.Clip = clip
	return st, nil
}

// CheckStartModel returns an error if no run with the configured task can begin with the model in cfg.StartModel.
func CheckStartModel(cfg Config) error {
	d := runs.NewStateFolder(store.LocalDisk, cfg.StateDir)
	record, found, err := d.LoadJournalRecord()
	if err != nil {
		return err
	}
	newest, start := record.Run, cfg.StartModel
	if start == StartFromCurrentModel {
		if !found || !record.Plan.BaseModel.IsSet() {
			return errors.New("the run has no model yet; start a run from an initial model")
		}
		models, err := d.OpenModelsOfRun(newest)
		if err != nil {
			return err
		}
		// The current model may not be archived yet, but all models have the same shape.
		versions, err := models.Versions()
		if err != nil || len(versions) == 0 {
			return errors.Join(err, errors.New("the run has no archived model yet; retry later"))
		}
		start = runs.ModelName(newest, versions[len(versions)-1])
	}
	if _, _, _, err = (startModelReader{&cfg, d}).readNamedModel(start, newest); err != nil {
		var state *runs.StateError
		if errors.As(err, &state) {
			return fmt.Errorf("%s: %s", cfg.StartModel, state.Problem)
		}
	}
	return err
}
