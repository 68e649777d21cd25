package aggregation

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// modelBeforeRestandardization returns the model from which a run with a new standardisation continues, and the old
// standardisation of this model. The returned model is nil if the run has no earlier model or if that model is lost. An
// error may be temporary.
func (w *Aggregator) modelBeforeRestandardization() ([]float32, learner.Standardization, error) {
	o := w.folder.Origin
	if !o.Restandardized {
		return nil, learner.Standardization{}, nil
	}
	model, from, err := w.readOriginModel(o)
	if store.IsMissingOrDamaged(err) || errors.Is(err, fs.ErrNotExist) {
		w.cfg.Logger.Error("the model from which the run should start is missing or damaged; starting from a new "+
			"initial model instead", "model", o.Model,
			"err", err)
		return nil, from, nil
	}
	return model, from, err
}

// firstModelAfterStatistics returns the first model after a statistics round: the earlier model converted to the new
// standardisation, or a random model if model is nil.
func (w *Aggregator) firstModelAfterStatistics(model []float32, from learner.Standardization) []float32 {
	if model == nil {
		return w.randomInitialModel()
	}
	p := w.compiledTask
	model = p.AllParameters(model, p.InitialOwnParameters(w.cfg.Round.Seed))
	switch err := p.Model.RestandardizeParameters(model, from, p.Standardization()); {
	case errors.Is(err, learner.ErrNoBias):
		w.cfg.Logger.Warn("model has no biases, so its conversion to the new standardisation of the columns is only "+
			"approximate",
			"model", w.folder.Origin.Model)
	case err != nil:
		w.cfg.Logger.Error(
			"cannot convert the model to the new standardisation of the columns; starting from a new initial model "+
				"instead",
			"model", w.folder.Origin.Model, "err", err)
		return w.randomInitialModel()
	}
	return p.SharedParameters(model)
}

// initialModelBytes returns the encoded initial model w_0: the shared tensors of the file Config.InitialModelPath, or
// of a random model.
func (w *Aggregator) initialModelBytes() (data []byte, err error) {
	path := w.cfg.InitialModelPath
	if path == "" {
		return wire.AppendVector(nil, w.randomInitialModel()), nil
	}
	m, err := w.folder.ReadModelFile(path)
	if err == nil {
		data, err = m.VectorForNewRun(w.compiledTask.Task.External.TrainedTensors)
	}
	whole := make([]float32, len(data)/4)
	if err == nil {
		err = wire.DecodeVector(whole, data)
	}
	if err != nil {
		return nil, fmt.Errorf("task.model.initial: %s: %w", path, err)
	}
	return wire.AppendVector(nil, w.compiledTask.SharedParameters(whole)), nil
}

// randomInitialModel returns the shared tensors of a random initial model w_0. Agents derive their own tensors from the
// same seed.
func (w *Aggregator) randomInitialModel() []float32 {
	return w.compiledTask.SharedParameters(w.compiledTask.InitialParameters(w.cfg.Round.Seed))
}

// readOriginModel returns the model from which the run began, and the model's standardisation.
func (w *Aggregator) readOriginModel(o runs.RunOrigin) ([]float32, learner.Standardization, error) {
	none := learner.Standardization{}
	run, version, ok := runs.ParseModelName(o.Model, 0)
	if !ok {
		return nil, none, fmt.Errorf("the state folder contains no model %q", o.Model)
	}
	m, err := w.folder.ReadModelOfRun(run, version)
	if err != nil {
		return nil, none, err
	}
	data := m.EncodeVector(w.compiledTask.UpdateSchema(wire.KindTraining))
	model := make([]float32, len(data)/4)
	return model, learner.Standardization{Mean: m.Standardization.Mean, Scale: m.Standardization.Scale},
		wire.DecodeVector(model, data)
}
