package external

import (
	"context"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/task"
)

// Predict implements [predict.PredictingProgram]. The program's silence timeout limits the duration of the call,
// because training waits for it.
func (t *ProgramTrainer) Predict(ctx context.Context, p *task.CompiledTask[float32],
	model []float32) (all []predict.Forecast,
	more bool, err error) {
	of, err := t.findProgramForTask(p)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, of.cfg.SilenceTimeout)
	defer cancel()
	run, err := of.ensureProcess(ctx)
	if err == nil && !slices.Contains(run.helloAnswer.Capabilities, capabilityPredict) {
		err = fmt.Errorf("predict.publish is set, but the trainer's capabilities (%q) do not include %q",
			run.helloAnswer.Capabilities, capabilityPredict)
	}
	if err == nil {
		all, more, err = of.predict(ctx, run, model)
	}
	if err != nil {
		err = fmt.Errorf("trainer %s: %w", of.trainerName, err)
	}
	return all, more, err
}

// predict requests predictions with a model.
func (p *program) predict(ctx context.Context, r *programRun, x []float32) (all []predict.Forecast, more bool,
	err error) {
	err = p.sendRequest(ctx, r, x, framePredicted, func(id uint64) any {
		return requestWithoutArguments{framePredict,
			id}
	},
		func(a *programAnswer) error {
			for _, c := range a.Predictions {
				if c.Value == nil {
					return fmt.Errorf("one of the trainer's %d predictions has no value",
						len(a.Predictions))
				}
				all = append(all, predict.Forecast{RowTime: c.Time, Value: *c.Value,
					ClassProbabilities: c.Probabilities,
					Residual:           c.Residual})
			}
			more = a.HasMorePredictions
			return nil
		})
	return all, more, err
}
