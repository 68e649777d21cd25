package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// startModelNeedsNewRun reports whether Config.From asks for a new run. It does not if the folder's run began with that
// model already, as after a restart with the same flags.
func (c *Coordinator) startModelNeedsNewRun(record round.Record, found bool) (bool, error) {
	is := c.stateFolder.Origin
	if !found || is.Given == "" {
		return true, nil
	}
	if is.Given != c.cfg.StartModel {
		o, _, _, err := c.readOrigin(c.cfg.StartModel, record.Run)
		if err != nil || o.Digest != is.Digest {
			return true, err
		}
	}
	c.cfg.Logger.Info("the run that began from this model goes on; add --new-run to --from to begin another one",
		"model", is.Model, "run", record.Run)
	return false, nil
}

// readOrigin returns the model that from names (see Config.From) as w_0 of the configured task, and the task with the
// standardisation of that model. newest is the run of a VERSION without RUN.
func (c *Coordinator) readOrigin(from string, newest wire.RunID) (runs.Origin, []byte, wire.Task, error) {
	o := runs.Origin{Given: from, Model: from}
	run, version, ok := runs.ParseModelName(from, newest)
	var m *runs.StoredModel
	var err error
	if ok {
		o.Model = runs.ModelName(run, version)
		var models *store.Models
		if models, err = c.stateFolder.ModelsOf(run); err == nil {
			m, err = c.stateFolder.ReadModel(models, version)
		}
	} else {
		m, err = c.readModelFile(from)
	}
	return c.resolveOrigin(o, m, err, runs.StateError{Path: "--from " + from,
		Remedy: "`coordinator task runs` and `coordinator model list` name the models on disk"})
}

// initialModelOrigin is readOrigin of Config.Initial.
func (c *Coordinator) initialModelOrigin() (runs.Origin, []byte, wire.Task, error) {
	path := c.cfg.InitialModelPath
	m, err := c.readModelFile(path)
	return c.resolveOrigin(runs.Origin{Model: path}, m, err, runs.StateError{Path: "task.model.initial: " + path,
		Remedy: "name a safetensors file of a model that fits the task, such as `coordinator model " +
			"export` writes, or " +
			"remove the key"})
}

func (c *Coordinator) readModelFile(path string) (*runs.StoredModel, error) {
	file, err := c.stateFolder.Disk.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return runs.DecodeModel(path, file)
}

// resolveOrigin is what readOrigin returns of a model that was read, or not; refused is for its error.
func (c *Coordinator) resolveOrigin(o runs.Origin, m *runs.StoredModel, err error,
	refused runs.StateError) (runs.Origin, []byte,
	wire.Task,
	error) {
	t := c.cfg.Task
	refuse := func(err error) (runs.Origin, []byte, wire.Task, error) {
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
	if t.Standardization, err = standardizationFor(m, p, c.cfg.Standardize, c.cfg.FeatureClip); err != nil {
		return refuse(err)
	}
	if err := task.Validate[float32](t); err != nil {
		return refuse(fmt.Errorf("its metadata: %w", err))
	}
	data, err := m.StartVector(p.Schema(wire.KindTraining))
	if err != nil {
		return refuse(err)
	}
	o.Digest = wire.BlobDigest(data)
	return o, data, t, nil
}

// standardizationFor returns the standardisation of the model, or an error if the configured task cannot begin with the
// model.
func standardizationFor(m *runs.StoredModel, p *task.CompiledTask[float32], standardize bool,
	clip float64) (wire.Standardization, error) {
	none := wire.Standardization{}
	features, err := json.Marshal(p.Task.Features)
	if err != nil {
		return none, err
	}
	a := p.Model.Architecture()
	wants := map[string]string{"features": string(features), "target": p.Task.Target, "risk": string(a.Risk)}
	if a.Layers() > 1 {
		wants["activation"] = string(a.Activation)
	}
	if pool := a.Convolution.PoolSteps; pool > 0 { // tensors tell all else of the shape
		wants["pool"] = strconv.Itoa(pool)
	}
	for _, key := range slices.Sorted(maps.Keys(wants)) {
		if has := m.Meta[key]; has != "" && has != wants[key] { // a file of another program has none
			return none, fmt.Errorf("the model was made with %s %s, the configured task has %s", key, has, wants[key])
		}
	}
	switch has := len(m.Standardization.Mean) > 0; {
	case has && !standardize:
		return none, errors.New("the model expects standardised columns (its file has mean and scale), but " +
			"task.standardize is false: set it to true")
	case !has && standardize:
		return none, errors.New("the model's file has no mean and scale of the columns, but task.standardize is " +
			"true: set it to false, or add both to the file's metadata")
	case !has:
		return none, nil
	}
	st := m.Standardization
	st.Clip = clip
	return st, nil
}

// removeOldRuns removes the models of earlier runs. It keeps the newest Config.KeepRuns runs that have trained a model,
// the run that the new one begins from, and those of which models are rolled out.
func (c *Coordinator) removeOldRuns(stored []wire.RunID, s *rollout.State) error {
	kept := 0
	for _, run := range slices.Backward(stored) {
		models, err := c.stateFolder.ModelsOf(run)
		if err != nil {
			return err
		}
		versions, err := models.Versions()
		if err != nil {
			return err
		}
		trained := len(versions) > 0 && versions[len(versions)-1] > 0
		if trained && kept < c.cfg.KeepRuns {
			kept++
			continue
		}
		if source, _, ok := runs.ParseModelName(c.stateFolder.Origin.Model, 0); ok && run == source ||
			len(rolledOutVersions(s, run)) > 0 {
			continue
		}
		if err := c.stateFolder.RemoveRun(run); err != nil {
			return err
		}
		c.cfg.Logger.Info("the models of an earlier run are removed (policy.keep_runs)", "run", run,
			"models", len(versions), "keep_runs", c.cfg.KeepRuns)
	}
	return nil
}
