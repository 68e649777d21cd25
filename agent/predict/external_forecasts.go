package predict

import (
	"errors"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// maxForecastsPerCheck is the approximate maximum number of forecasts requested from a program per check. Further
// forecasts are requested in the next check.
const maxForecastsPerCheck = 10_000

// makeExternalForecasts returns the forecasts of an external program for new rows. It returns no forecasts if l, the
// announced task, is nil, because the program does not have the task yet.
func (p *PredictionManager) makeExternalForecasts(f *forecaster, m *modelfile.Model,
	l *part.LocalTask) (all []Forecast, err error) {
	if l == nil || l.CompiledTask == nil {
		return nil, nil
	}
	if !m.IsComparableWith(modelfile.NewModel(&l.CompiledTask.Task, l.CompiledTask.Model.Architecture(), nil,
		wire.Digest{})) {
		return nil, errors.New("the tensors of the model in use do not match the device's task, so the trainer is " +
			"not running")
	}
	program, err := p.dependencies.FindProgram()
	if err != nil {
		return nil, err
	}
	w, err := m.Parameters()
	if f.model == nil || !f.model.IsComparableWith(m) {
		f.recentResiduals = residualHistory{}
	}
	f.model, f.comparison = m, modelComparison{}
	for more := err == nil; more && len(all) < maxForecastsPerCheck; {
		var some []Forecast
		some, more, err = program.Predict(p.core.Loop.Context(), l.CompiledTask, w)
		all, more = append(all, some...), more && err == nil && len(some) > 0
	}
	for i := range all {
		c := &all[i]
		c.Target = m.PredictionTarget()
		if c.ModelName = m.DisplayName(); c.Residual != nil {
			f.scoreAnomaly(c, *c.Residual, p.cfg.UsualResidualShare)
		}
	}
	return all, err
}
