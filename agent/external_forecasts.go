package agent

import (
	"errors"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// maxForecastsPerFetch is about how many predictions of a program are taken in one look; the others follow with the
// next.
const maxForecastsPerFetch = 10_000

// opaqueTrainer is the trainer of tasks of which only it knows what they compute.
func (a *Agent) opaqueTrainer() (OpaqueTrainer, error) {
	if by, is := a.cfg.Trainer.(OpaqueTrainer); is {
		return by, nil
	}
	return nil, errors.New("this device has no trainers: add them to agentd.yaml")
}

// forecastsOf returns the forecasts of an external model, which its program makes of rows that have come to it. l is
// the device's task: nil before there is one, and the program that would know it.
func (a *Agent) forecastsOf(f *forecaster, m *modelfile.Model, l *part.LocalTask) (all []Forecast, err error) {
	if l == nil || l.CompiledTask == nil {
		return nil, nil
	}
	if !m.ComparableWith(modelfile.NewModel(&l.CompiledTask.Task, l.CompiledTask.Model.Architecture(), nil,
		wire.Digest{})) {
		return nil, errors.New("the model in use has other tensors than the device's task: its program does not run")
	}
	by, err := a.opaqueTrainer()
	if err != nil {
		return nil, err
	}
	w, err := modelParameters(m)
	if f.model == nil || !f.model.ComparableWith(m) {
		f.recentResiduals = residualHistory{}
	}
	f.model, f.paired = m, modelComparison{}
	for more := err == nil; more && len(all) < maxForecastsPerFetch; {
		var some []Forecast
		some, more, err = by.Predict(a.owner.Context(), l.CompiledTask, w)
		all, more = append(all, some...), more && err == nil && len(some) > 0
	}
	for i := range all {
		c := &all[i]
		c.Target = m.PredictionTarget()
		if c.Model = m.DisplayName(); c.Residual != nil {
			f.scoreAnomaly(c, *c.Residual, a.cfg.Predict.UsualResidualShare)
		}
	}
	return all, err
}
