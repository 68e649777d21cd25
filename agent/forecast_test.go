package agent_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// forecasting returns an agent that reads a data file and uses a model for predictions, by default the model 2a − b.
func forecasting(t *testing.T, text string, publish func(predict.Forecast) error, w ...float32) *logger {
	t.Helper()
	l := follower(t, text)
	l.forecasts(publish, nil, w...)
	return l
}

// follower returns an agent that is configured to read a data file and follow its changes.
func follower(t *testing.T, text string) *logger {
	t.Helper()
	l := newLogger(t, text)
	l.stop()
	c := data.Config{Source: data.SourceCSV, CSVPath: l.path, TimeColumn: "t"}
	var err error
	if l.cfg.TaskData.Source, err = sources.Open(&c); err != nil {
		t.Fatal(err)
	}
	return l
}

// forecastingFrom is like forecasting, but builds rows from the readings of a source.
func forecastingFrom(t *testing.T, publish func(predict.Forecast) error, source data.Source) *logger {
	t.Helper()
	l := newLogger(t, "")
	l.stop()
	l.cfg.TaskData.Source = source
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{{Name: "a",
		Unit: "µg/m³", Transform: spec.TransformLog1p}, {Name: "b"}}}.WithDefaults()
	l.forecasts(publish, &r, 2, -1)
	return l
}

// forecasts starts the agent with a model that has the parameters w.
func (l *logger) forecasts(publish func(predict.Forecast) error, recipe *spec.RowRecipe, w ...float32) {
	l.t.Helper()
	a := learner.Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared}
	if len(w) == 4 {
		a.Outputs, a.Risk = 2, spec.LossSoftmax
	}
	vector := wire.AppendVector(nil, w)
	task := &wire.Task{Name: "a task", Features: []string{"a", "b"}, TargetColumn: "y"}
	if recipe != nil {
		task.Recipe, task.TargetColumn = *recipe, "a in 2h"
	}
	l.forecastsBy(publish, modelfile.NewModel(task, a, vector, wire.BlobDigest(vector)))
}

// forecastsBy starts the agent with the model m as model version 7.
func (l *logger) forecastsBy(publish func(predict.Forecast) error, m *modelfile.Model) {
	l.t.Helper()
	m.Version = 7
	l.forecastsWith(publish, m)
}

// forecastsWith starts the agent with the model m.
func (l *logger) forecastsWith(publish func(predict.Forecast) error, m *modelfile.Model) {
	t := l.t
	t.Helper()
	k, err := modelfile.OpenKeptModels(store.LocalDisk, l.cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	m.Run = 5
	if err := k.Install(m, 1, wire.ModelRef{}); err != nil {
		t.Fatal(err)
	}
	l.cfg.Predict = &predict.Config{MaxKeptModels: 1, ForecastInterval: time.Minute, UsualResidualShare: 0.9,
		ShowsValues:     l.cfg.TaskData.ShowsValues,
		PublishForecast: publish}
	l.start()
}

// history returns rows with y = 2a − b and residuals of ±1, at intervals of one hour.
func history(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		x, z := i%5, i%7
		fmt.Fprintf(&b, "%d,%d,%d,%d\n", 3600*i, x, z, 2*x-z+1-2*(i%2))
	}
	return b.String()
}

// TestForecastsWithoutTargets checks that the agent publishes one forecast for a line without a target value, even if
// the target value is added later.
func TestForecastsWithoutTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		publish := func(f predict.Forecast) error {
			residual := "unknown"
			if f.Residual != nil {
				residual = fmt.Sprint(*f.Residual)
			}
			all = append(all, fmt.Sprintf("%d: %v, residual %s", f.RowTime.Unix()/3600, f.Value, residual))
			return nil
		}
		head := "t,a,b,y\n" + history(0, 100)
		l := forecasting(t, head+"360000,1,1,\n", publish, 2, -1)
		for _, text := range []string{"360000,1,1,\n363600,2,1,\n", "360000,1,1,\n363600,2,1,\n367200,2,2,3\n",
			"360000,1,1,4\n363600,2,1,\n367200,2,2,3\n370800,1,3,\n"} {
			wait(2 * time.Minute)
			l.write(head + text)
		}
		wait(2 * time.Minute)
		want := []string{"100: 1, residual unknown", "101: 3, residual unknown", "102: 2, residual 1",
			"103: -1, residual unknown"}
		if !slices.Equal(all, want) {
			t.Errorf("%q, want %q", all, want)
		}
	})
}

// TestForecasts checks that the agent publishes one forecast with its residual for each new row, even without a
// coordinator and a connection. Only the newest of the rows that existed before the start gets a forecast. A residual
// above the usual residuals is an anomaly.
func TestForecasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []predict.Forecast
		var refuse, once error
		publish := func(f predict.Forecast) (err error) {
			if err, once = cmp.Or(once, refuse), nil; err == nil {
				all = append(all, f)
			}
			return err
		}
		head := "t,a,b,y\n"
		l := follower(t, head+history(0, 100))
		l.cfg.TaskData.ShowsValues = true
		l.forecasts(publish, nil, 2, -1)
		l.tell(mqtt.LinkDown{Err: errors.New("gone")})
		wait(2 * time.Minute)
		if len(all) != 1 || !all[0].RowTime.Equal(time.Unix(99*3600,
			0)) || all[0].ModelName != "5/7" || all[0].Value != 7 ||
			*all[0].Residual != -1 || all[0].AnomalyScore != 1 || all[0].IsAnomaly {
			t.Fatalf("%+v; %+v", all, l.observed)
		}
		info, err := os.Stat(modelfile.ActiveModelPath(l.cfg.StateDir))
		if used := eventsOf[predict.ModelInUseChanged](l.scene); err != nil ||
			!used[0].InstalledAt.Equal(info.ModTime()) {
			t.Errorf("%+v; its file is of %v, %v", used, info.ModTime(), err)
		}
		l.write(head + history(0, 103) + "370800,1,1,9\n")
		wait(2 * time.Minute)
		if len(all) != 5 || all[3].IsAnomaly || *all[4].Residual != 8 || all[4].AnomalyScore != 8 || !all[4].IsAnomaly {
			t.Fatalf("%+v", all[1:])
		}
		events := eventsOf[predict.ForecastsMade](l.scene)
		if f := events[len(events)-1]; f.PublishedForecasts != 4 || f.Anomalies != 1 ||
			math.Abs(f.MeanResidual-(103+8)/104.) > 1e-9 || f.ShownForecast == nil || f.ShownForecast.Value != 1 ||
			f.ShownResidual == nil || *f.ShownResidual.Residual != 8 {
			t.Errorf("%+v", f)
		}
		l.write("t,a\n1,1\n")
		wait(5 * time.Minute)
		refuse = errors.New("no broker")
		l.write(head + history(0, 103) + "370800,1,1,9\n374400,1,1,1\n")
		wait(5 * time.Minute)
		refuse = nil
		l.write(head + history(0, 103) + "370800,1,1,9\n374400,1,1,1\n378000,1,1,1\n")
		wait(5 * time.Minute)
		once = errors.New("too large")
		l.write(head + history(0, 103) +
			"370800,1,1,9\n374400,1,1,1\n378000,1,1,1\n381600,1,1,1\n385200,1,1,1\n")
		wait(5 * time.Minute)
		var told []string
		for _, f := range eventsOf[predict.ForecastsMade](l.scene)[len(events):] {
			told = append(told, fmt.Sprintf("%d rows, %d lost, mended %t, %v", f.PublishedForecasts, f.LostForecasts,
				f.ErrorResolved, f.Err != nil))
		}
		if got, want := strings.Join(told, "; "), "0 rows, 0 lost, mended false, true; 0 rows, 1 lost, mended false, "+
			"true; 1 rows, 0 lost, mended true, false; 1 rows, 1 lost, mended false, "+
			"true"; got != want || len(all) != 7 {
			t.Errorf("%s\nwant %s", got, want)
		}
	})
}

// TestForecastsOfAnAutoencoder checks that each row immediately gets one forecast, with the reconstruction error as its
// residual, and that an unusual row is an anomaly. Rows made from readings must not wait for labels.
func TestForecastsOfAnAutoencoder(t *testing.T) {
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{{Name: "a"}, {Name: "b"}}}
	recipe = recipe.WithDefaults()
	for name, of := range map[string]spec.RowRecipe{"rows": {}, "readings": recipe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all []predict.Forecast
				publish := func(f predict.Forecast) error { all = append(all, f); return nil }
				text := "t,a,b\n"
				for i := range 100 {
					text += fmt.Sprintf("%d,%d,%d\n", 3600*i, i%5, i%5+i%2)
				}
				l := follower(t, text)
				a := learner.Architecture{Kind: spec.ModelAutoencoder, Inputs: 2, HiddenUnits: []int{1}, Outputs: 1,
					Activation: spec.ActivationIdentity, Risk: spec.LossSquared}
				// The model returns the value a for both columns.
				vector := wire.AppendVector(nil, []float32{1, 0, 1, 1})
				task := &wire.Task{Name: "a task", Features: []string{"a", "b"}, Recipe: of}
				l.forecastsBy(publish, modelfile.NewModel(task, a, vector, wire.BlobDigest(vector)))
				wait(2 * time.Minute)
				l.write(text + "360000,1,1\n363600,1,9\n367200,2,2\n370800,2,2\n")
				wait(2 * time.Minute)
				got := ""
				for _, f := range all {
					got += fmt.Sprintf(" %d:%.3f/%.3f/%t", f.RowTime.Unix()/3600, f.Value, *f.Residual, f.IsAnomaly)
				}
				want := " 99:0.707/0.707/false 100:0.000/0.000/false 101:5.657/5.657/true 102:0.000/0.000/false " +
					"103:0.000/0.000/false"
				if of.Grid.Step > 0 { // The last reading belongs to an unfinished point of the time grid.
					want = strings.Replace(strings.TrimSuffix(want, " 103:0.000/0.000/false"), " 99:0.707/0.707/false",
						" 98:0.000/0.000/false 99:0.707/0.707/false", 1)
				}
				if got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
			})
		})
	}
}

// TestForecastsInABurst checks that forecasts for many rows are published later, in order, if the connection cannot
// accept more messages.
func TestForecastsInABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []predict.Forecast
		var room atomic.Int64 // The test changes this value while jobs read it.
		head := "t,a,b,y\n"
		l := forecasting(t, head+history(0, 100), func(f predict.Forecast) error {
			if room.Add(-1) < 0 {
				return mqtt.ErrOutboxFull
			}
			all = append(all, f)
			return nil
		}, 2, -1)
		wait(2 * time.Minute)
		l.write(head + history(0, 107))
		for range 4 {
			wait(time.Minute)
			room.Store(3)
		}
		wait(time.Second)
		for i, f := range all {
			if !f.RowTime.Equal(time.Unix(int64(99+i)*3600, 0)) {
				t.Errorf("forecast %d is of %v", i, f.RowTime)
			}
		}
		made, rows := 0, 0
		for _, f := range eventsOf[predict.ForecastsMade](l.scene) {
			made, rows = made+f.NewForecasts, rows+f.PublishedForecasts
			if f.Err != nil || f.LostForecasts > 0 || f.ShownForecast != nil || f.ShownResidual != nil {
				t.Errorf("%+v", f)
			}
		}
		if len(all) != 8 || made != 8 || rows != 8 {
			t.Errorf("%d forecasts are published of %d: %d are told", len(all), made, rows)
		}
	})
}

// TestForecastsWhileTrainingIsDeclined checks that an agent continues to publish forecasts while its device is too hot
// to train and its rows do not fit the task.
func TestForecastsWhileTrainingIsDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []predict.Forecast
		head := "t,a,b,y\n"
		l := forecasting(t, head+history(0, 100), func(f predict.Forecast) error {
			all = append(all, f)
			return nil
		}, 2, -1)
		l.stop()
		set := heated(l.scene)
		l.start()
		l.plays(1)
		set(90)
		wait(time.Minute)
		l.invite(2, l.announce(2, l.training(taskOf("a task"), 0, 0)))
		if d := l.declined(); d != "hot" {
			t.Errorf("declined with %q", d)
		}
		before := len(all)
		l.write(head + history(0, 103))
		wait(2 * time.Minute)
		set(20)
		wait(time.Minute)
		other := taskOf("another task")
		other.Features = []string{"a", "pressure"}
		l.invite(3, l.announce(3, l.training(other, 0, 0)))
		if d := l.declined(); d != "hot bad_data" {
			t.Errorf("declined with %q", d)
		}
		l.write(head + history(0, 106))
		wait(2 * time.Minute)
		if len(all) != before+6 || !all[before+5].RowTime.Equal(time.Unix(105*3600, 0)) {
			t.Errorf("%d forecasts before, and then %+v", before, all[before:])
		}
	})
}

// TestForecastsOfClasses checks that the residual of a classification is 1 minus the predicted probability of the row's
// true class.
func TestForecastsOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []predict.Forecast
		l := forecasting(t, "t,a,b,y\n0,0,0,1\n", func(f predict.Forecast) error {
			all = append(all, f)
			return nil
		}, 0, 0, 1, 0)
		wait(2 * time.Minute)
		l.write("t,a,b,y\n0,0,0,1\n3600,9,0,1\n7200,9,0,0\n9000,1,1,5\n")
		wait(2 * time.Minute)
		if len(all) != 3 || *all[0].Residual != 0.5 || all[1].Value != 1 || *all[1].Residual > 1e-3 ||
			*all[2].Residual < 0.999 || len(all[2].ClassProbabilities) != 2 {
			t.Errorf("%+v", all)
		}
		events := eventsOf[predict.ForecastsMade](l.scene)
		if f := events[len(events)-1]; f.FailedRows != 1 {
			t.Errorf("%+v", f)
		}
	})
}

// readings is a source of n rows. The last two rows have no target values yet.
type readings struct {
	n     *atomic.Int64
	early bool
}

func (r readings) OpenRows(w data.RowQuery) data.QueriedRows { return readings{r.n, w.IsForPrediction} }
func (readings) Probe() error                                { return nil }
func (readings) Close() error                                { return nil }
func (readings) Changed() bool                               { return true }

func (r readings) Snapshot() (data.RowSnapshot, error) {
	n := int(r.n.Load())
	if !r.early {
		n -= 2
	}
	if n < 1 {
		return data.RowSnapshot{}, errors.New("no rows can be built yet")
	}
	var x, y []float32
	var times []int64
	for i := range n {
		x, y, times = append(x, float32(i), 0), append(y, float32(2*i+1)), append(times, int64(i)*int64(time.Hour))
	}
	if r.early {
		clear(y)
	}
	return data.RowSnapshot{Version: 1, Rows: learner.NewSamples(2, x, y), Times: data.NewRowTimes(times)}, nil
}

// TestForecastsBeforeTheirLabels checks that the agent publishes the prediction for a row made from readings at once,
// and the residual when the label is known.
func TestForecastsBeforeTheirLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		publish := func(f predict.Forecast) error {
			text := fmt.Sprintf("%d: %v", f.RowTime.Unix()/3600, f.Value)
			if f.Residual != nil {
				text += fmt.Sprintf(" %v", *f.Residual)
			}
			told = append(told, text)
			return nil
		}
		var n atomic.Int64
		n.Store(2)
		l := forecastingFrom(t, publish, readings{n: &n})
		wait(2 * time.Minute)
		n.Store(4)
		wait(2 * time.Minute)
		n.Store(5)
		wait(2 * time.Minute)
		want := "1: 2; 2: 4; 3: 6; 4: 8; 2: 4 1"
		if got := strings.Join(told, "; "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for _, f := range eventsOf[predict.ForecastsMade](l.scene) {
			if f.Err != nil {
				t.Error(f.Err)
			}
		}
	})
}

// TestForecastFor checks that a forecast contains the time to which its target value belongs, and a description of the
// target.
func TestForecastFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []predict.Forecast
		var n atomic.Int64
		n.Store(3)
		forecastingFrom(t, func(f predict.Forecast) error { got = append(got, f); return nil }, readings{n: &n})
		wait(2 * time.Minute)
		if len(got) == 0 {
			t.Fatal("no forecast")
		}
		for _, f := range got {
			if f.Target != (modelfile.PredictionTarget{TargetColumn: "a in 2h", Unit: "log1p(µg/m³)",
				Horizon: 2 * time.Hour}) ||
				!f.TargetTime().Equal(f.RowTime.Add(2*time.Hour)) {
				t.Errorf("%+v, for %s", f, f.TargetTime())
			}
		}
	})
}
