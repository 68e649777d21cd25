package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// teller is a trainer of external tasks that makes predictions. Each call returns predictions for the next element of
// rows, and each predicted value is the first parameter of the model.
type teller struct {
	training.LocalTrainer
	mu    sync.Mutex
	rows  [][]predict.Forecast
	fails error
	asked int
}

func (o *teller) InitialPersonalParameters(context.Context, *task.CompiledTask[float32]) ([]float32, error) {
	return nil, nil
}

func (o *teller) Evaluate(context.Context, *task.CompiledTask[float32], []float32) (evaluation.ModelScoreByProgram,
	error) {
	return evaluation.ModelScoreByProgram{}, nil
}

func (o *teller) Predict(_ context.Context, _ *task.CompiledTask[float32], model []float32) (some []predict.Forecast,
	more bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked++; len(o.rows) == 0 || o.fails != nil {
		return nil, false, o.fails
	}
	some, o.rows = o.rows[0], o.rows[1:]
	for i := range some {
		some[i].Value = float64(model[0])
	}
	return some, len(o.rows) > 0, nil
}

// lock calls the function do while the trainer's mutex is locked.
func (o *teller) lock(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// externalTask returns a task whose model is trained by an external program.
func externalTask(name string) wire.Task {
	t := taskOf(name)
	t.Features, t.TargetColumn, t.MinSamples, t.Training.GradientNoise.Law = nil, "", 1, spec.NoiseNone
	t.External = wire.ExternalTraining{TrainerName: name,
		TrainedTensors: wire.TensorSchema{{Name: "w", DType: wire.Float32, Shape: []uint32{2}}}}
	return t
}

// TestProgramPredicts checks that an external program makes predictions with the model in use as soon as the program's
// task is known. As for built-in models, residuals above the usual residuals are anomalies.
func TestProgramPredicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []predict.Forecast
		l, g, o := newLogger(t, ""), new(growing), new(teller)
		l.stop()
		g.Store(5)
		l.cfg.TaskData.Source, l.cfg.Training.Trainer, l.cfg.TaskData.HeldOutShare = g, o, 0.2
		external := externalTask("plant")
		p, err := task.Compile[float32](external)
		if err != nil {
			t.Fatal(err)
		}
		vector := wire.AppendVector(nil, []float32{3, 4})
		l.forecastsBy(func(f predict.Forecast) error {
			o.lock(func() { all = append(all, f) })
			return nil
		}, modelfile.NewModel(&external, p.Model.Architecture(), vector, wire.BlobDigest(vector)))
		wait(2 * time.Minute)
		o.lock(func() {
			if o.asked > 0 {
				t.Error("the program was asked before there was its task")
			}
		})
		usual, large, at := 0.5, 2.0, time.Unix(7200, 0)
		o.lock(func() {
			for range 60 {
				o.rows = append(o.rows, []predict.Forecast{{Residual: &usual}})
			}
			o.rows = append(o.rows, []predict.Forecast{{RowTime: at}, {Residual: &large}})
		})
		idle := l.training(external, 3, 4)
		idle.Phase = wire.PhaseIdle
		l.announce(1, idle)
		wait(time.Minute)
		away := errors.New("the camera is away")
		o.lock(func() {
			if n := len(all); n != 62 || all[60].Value != 3 || all[60].ModelName != "5/7" ||
				!all[60].RowTime.Equal(at) ||
				all[60].Residual != nil || all[59].IsAnomaly || all[61].AnomalyScore != 4 || !all[61].IsAnomaly {
				t.Fatalf("%d predictions, %+v", n, all[max(0, n-2):])
			}
			o.fails = away
		})
		wait(5 * time.Minute)
		events := eventsOf[predict.ForecastsMade](l.scene)
		if n := len(events); n != 2 || events[0].PublishedForecasts != 62 || events[0].Anomalies != 1 ||
			!errors.Is(events[1].Err, away) {
			t.Errorf("%+v", events)
		}
		asked := 0
		o.lock(func() { o.fails, asked = nil, o.asked })
		external.External.TrainedTensors[0].Shape = []uint32{1, 2}
		other := l.training(external, 3, 4)
		other.Phase = wire.PhaseIdle
		l.announce(2, other)
		wait(2 * time.Minute)
		events = eventsOf[predict.ForecastsMade](l.scene)
		err = events[len(events)-1].Err
		o.lock(func() {
			if o.asked != asked || err == nil || !strings.Contains(err.Error(), "do not match the device's task") {
				t.Errorf("with tensors of another shape: error %v", err)
			}
		})
	})
}

// TestProgramsModel checks that an agent keeps the models of an external program, although the agent holds out no rows
// for these models.
func TestProgramsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newScene(t), new(growing)
		g.Store(5)
		s.cfg.TaskData.Source, s.cfg.Training.Trainer, s.cfg.TaskData.HeldOutShare = g, new(teller), 0.2
		s.cfg.Predict = &predict.Config{MaxKeptModels: 2}
		s.start()
		for v := wire.ModelVersion(1); v <= 3; v++ {
			a := s.training(externalTask("plant"), float32(v), 1)
			a.BaseModelVersion, a.Phase = v, wire.PhaseIdle
			s.announce(wire.RoundID(v), a)
			wait(time.Minute)
			f := eventsOf[predict.ModelInUseChanged](s)
			if len(f) != int(v) || f[v-1].Version != v {
				t.Fatalf("after version %d: %+v; %+v", v, f, eventsOf[predict.ModelJudged](s))
			}
		}
		file, err := store.LocalDisk.ReadFile(modelfile.ActiveModelPath(s.cfg.StateDir))
		if err != nil {
			t.Fatal(err)
		}
		m, err := modelfile.Decode(file)
		if err != nil || m.Architecture.Kind != spec.ModelExternal || m.Version != 3 {
			t.Errorf("%+v, error %v", m, err)
		}
	})
}
