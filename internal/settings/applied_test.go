package settings_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
)

// TestTaskFile checks that a task file is unchanged after it was written and read back, for any task.
func TestTaskFile(t *testing.T) {
	plain := settings.DefaultTask()
	plain.Name, plain.Features, plain.Target = "plain", []string{"a b", "c: d", "é", "on"}, "y"
	readings := settings.DefaultTask()
	readings.Name, readings.Features = "readings", []string{"pm25", "pm25 lag 3h", "hour", "wd"}
	readings.Target = "pm25 in 6h"
	readings.TimeGrid = spec.TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute, TimeZone: "UTC"}
	readings.Inputs = []spec.InputSeries{
		{Name: "pm25", Unit: "µg/m³", ValidRange: []float64{-0.5, 1e3}, Resampling: spec.ResampleMax,
			Transform: spec.TransformLog1p},
		{Name: "wd", Classes: []string{"N", "no", "1", "a, b: {c}"}},
	}
	readings.Model = spec.Model{Kind: spec.ModelMLP, HiddenUnits: []int{8, 4}, Activation: spec.ActivationReLU,
		Risk: spec.LossHuber, HuberDelta: 1.5, HasBias: true, FrozenTensors: []string{"layer0"}}
	readings.StepSize = spec.StepSize{IsDiminishing: true, StrongConvexity: 0.1, Smoothness: 400}
	readings.Standardize, readings.ClipStandardDeviations, readings.MinRows = false, 0, 33
	for _, task := range []settings.Task{plain, readings} {
		s := coordinatorsettings.Default()
		a := s.AppliedSettings()
		a.Task = task
		text := string(a.YAML())
		got, err := settings.ReadTask(writeFile(t, "task.yaml", text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if want := task.ToWireTask(false); !bytes.Equal(got.AppendEncoding(nil), want.AppendEncoding(nil)) {
			t.Errorf("read\n%+v\nwritten was\n%+v\n%s", got, want, text)
		}
	}
}

// TestTaskFileRefused checks that every problem is reported with its line.
func TestTaskFileRefused(t *testing.T) {
	_, err := settings.ReadTask(writeFile(t, "task.yaml", "task:\n  name: x\n  target: y\n  min_rows: 0\n"))
	wantError(t, err, "task.features: must not be empty")
	wantError(t, err, "task.yaml:4:13: task.min_rows")
}

// TestReadApplied checks that both a complete coordinator.yaml and the output of `task show` can be read, and that
// problems are reported with their line numbers.
func TestReadApplied(t *testing.T) {
	s := coordinatorsettings.Default()
	if err := settings.Load(&s, "coordinator", writeFile(t, "coordinator.yaml", coordinatorFile(t)), nil); err != nil {
		t.Fatal(err)
	}
	a := s.AppliedSettings()
	a.Round.Participants = 5
	read, err := s.ReadApplied("part.yaml", a.YAML())
	if all, _ := coordinatorsettings.DiffApplied(s.AppliedSettings(), read); err != nil || len(all) != 1 ||
		all[0].After != "5" {
		t.Errorf("%v: %v", err, all)
	}
	_, err = s.ReadApplied("part.yaml", []byte("task:\n  nmae: x\n"))
	wantError(t, err, "part.yaml:2:3: unknown key")
}

// TestEdit checks that editing a coordinator.yaml or the output of `task show` changes only the given keys.
func TestEdit(t *testing.T) {
	whole := "federation: air\nstate_dir: /nowhere\ntask: {name: air, features: [a, b], target: y, " +
		"step_size: {constant: 0.5}}\n" +
		"round: {rounds: 7}\n"
	text, err := coordinatorsettings.EditAppliedText("coordinator.yaml", []byte(whole),
		map[string]string{"task.step_size.constant": "0.7"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second iteration edits the output of the first
		var a coordinatorsettings.AppliedSettings
		if err := config.Load(&a, config.Source{Path: "edited", Text: text}); err != nil {
			t.Fatal(err)
		}
		if a.Task.StepSize.Constant != 0.7 || a.Round.MaxAggregations != 7 || a.Task.Name != "air" ||
			len(a.Task.Features) != 2 {
			t.Errorf("%+v, %+v", a.Task, a.Round)
		}
		if text, err = coordinatorsettings.EditAppliedText("the applied task", text,
			map[string]string{"round.rounds": "7"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := coordinatorsettings.EditAppliedText("f.yaml", []byte(whole),
		map[string]string{"task.step_size.constant": "warm"}); err == nil {
		t.Error("a value that is no number is no error")
	}
}

// TestReadWholeFile checks that ReadTask accepts the files that `task apply` accepts.
func TestReadWholeFile(t *testing.T) {
	path := writeFile(t, "coordinator.yaml", "federation: air\nstate_dir: /nowhere\nbroker: {url: 'tcp://b:1'}\n"+
		"task: {name: air, features: [a, b], target: y}\nround: {rounds: 7}\n")
	if got, err := settings.ReadTask(path); err != nil || got.Name != "air" || got.TargetColumn != "y" {
		t.Errorf("%+v, %v", got, err)
	}
}
