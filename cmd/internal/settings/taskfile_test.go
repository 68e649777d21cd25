package settings

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// TestTaskFile: a task that is written is the same when it is read, whatever it has.
func TestTaskFile(t *testing.T) {
	plain := defaultTask()
	plain.Name, plain.Features, plain.Target = "plain", []string{"a b", "c: d", "é", "on"}, "y"
	readings := defaultTask()
	readings.Name, readings.Features = "readings", []string{"pm25", "pm25 lag 3h", "hour", "wd"}
	readings.Target = "pm25 in 6h"
	readings.Grid = spec.Grid{Step: time.Hour, Lateness: 10 * time.Minute, Zone: "UTC"}
	readings.Inputs = []spec.Input{
		{Name: "pm25", Unit: "µg/m³", Range: []float64{-0.5, 1e3}, Join: spec.JoinMax, Scale: spec.ScaleLog1p},
		{Name: "wd", Classes: []string{"N", "no", "1", "a, b: {c}"}},
	}
	readings.Model = spec.Model{Kind: spec.ModelMLP, Hidden: []int{8, 4}, Activation: spec.ActivationReLU,
		Risk: spec.RiskHuber, HuberDelta: 1.5, Bias: true, Frozen: []string{"layer0"}}
	readings.StepSize = spec.StepSize{Diminishing: true, StrongConvexity: 0.1, Smoothness: 400}
	readings.Standardize, readings.Clip, readings.MinRows = false, 0, 33
	for _, task := range []Task{plain, readings} {
		var text strings.Builder
		s := Coordinator{Federation: "air", Task: task}
		if err := s.WriteTask(&text); err != nil {
			t.Fatal(err)
		}
		got, err := ReadTask(writeFile(t, "task.yaml", text.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		if want := task.Wire(false); !bytes.Equal(got.Append(nil), want.Append(nil)) {
			t.Errorf("read\n%+v\nwritten was\n%+v\n%s", got, want, text.String())
		}
	}
}

// TestTaskFileRefused: every problem is told with its line.
func TestTaskFileRefused(t *testing.T) {
	_, err := ReadTask(writeFile(t, "task.yaml", "task:\n  name: x\n  target: y\n  min_rows: 0\n"))
	wantError(t, err, "task.features: is empty")
	wantError(t, err, "task.yaml:4:13: task.min_rows")
}
