package datacheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestFindings checks that the doctor reports one finding per class of faults, then one on whether the agent would
// participate. Each bad finding must have a remedy.
func TestFindings(t *testing.T) {
	plane := &TaskWithOrigin{Origin: "a file", Task: wire.Task{Name: "plane", Features: []string{"a"},
		TargetColumn: "y",
		MinSamples:   2,
		Model:        wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1, LocalStepProbability: 1,
			StepTimeBudgetMillis: 1000,
			MinLocalSteps:        1, MaxLocalSteps: 1}}}
	rows := strings.Repeat("1,2\n", 20)
	for _, tt := range []struct {
		name, text string
		task       *TaskWithOrigin
		found      string // expected states of the findings
		says       []string
	}{
		{"good", "a,y\n" + rows, plane, "good", []string{"d.csv contains 20 rows for the task plane"}},
		{"no task", "a,y\n" + rows, nil, "good", []string{"20 lines; the data was not checked against a task: nobody " +
			"knows it"}},
		{"two classes of faults", "a,y\n,1\nx,2\nx,3\n" + rows, plane, "warn warn good", []string{
			`column "a": 1 missing, first: `, "d.csv:2:1: the value is empty, but", `column "a": 2 not_a_number, ` +
				`first: `,
			`if "x" means a missing value, add it to data.missing_values: ["x"]`}},
		{"too few", "a,y\n1,2\n", plane, "bad", []string{"would decline the task: the data contains 1 training rows"}},
		{"a delimiter", "a;y\n" + strings.ReplaceAll(rows, ",", ";"), plane, "bad bad", []string{
			`set data.delimiter: ";"`, "would decline"}},
		{"no column", "b,y\n" + rows, plane, "warn bad", []string{`the header has no column "a"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings.DefaultAgent()
			s.StateDir, s.Data.CSVPath = t.TempDir(), filepath.Join(t.TempDir(), "d.csv")
			if err := os.WriteFile(s.Data.CSVPath, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Run(&s, tt.task, "nobody knows it")
			if err != nil {
				t.Fatal(err)
			}
			var states []string
			text := ""
			for _, f := range r.DoctorFindings() {
				states = append(states, string(f.State))
				text += f.Observation + " → " + f.Remedy + "\n"
				if f.State == doctor.Bad && f.Remedy == "" {
					t.Errorf("%+v does not say what to do", f)
				}
			}
			if got := strings.Join(states, " "); got != tt.found {
				t.Errorf("%s, want %s\n%s", got, tt.found, text)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			if left, err := os.ReadDir(s.StateDir); len(left) > 0 || err != nil {
				t.Errorf("the check left %v, %v", left, err)
			}
		})
	}
}

// TestNoReadings checks that missing readings are only a warning before the first run. A file of readings that is
// unreadable or completely damaged must be an error.
func TestNoReadings(t *testing.T) {
	for _, tt := range []struct {
		name     string
		make     func(dir string) error
		findings int
		state    doctor.FindingStatus
		last     string
	}{
		{"no ring", func(string) error { return nil }, 1, doctor.Warn,
			"the agent has not recorded any sensor readings yet"},
		{"an empty one", func(dir string) error { return os.Mkdir(dir, 0o700) }, 1, doctor.Warn,
			"the agent has not recorded any sensor readings yet"},
		{"no folder", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, 2, doctor.Bad,
			"this device would decline the task: store: list "},
		{"all damaged", func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700),
				os.WriteFile(filepath.Join(dir, "ring-000000000001.segment"), []byte("FMG1\x09\x00"+
					strings.Repeat("x", 100)), 0o600))
		}, 2, doctor.Bad, "this device would decline the task: store: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings.DefaultAgent()
			s.StateDir = t.TempDir()
			s.Data = data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"a": "site/a"}}
			if err := tt.make(filepath.Join(s.StateDir, "readings")); err != nil {
				t.Fatal(err)
			}
			r, err := Run(&s, nil, "nobody knows it")
			if err != nil {
				t.Fatal(err)
			}
			all := r.DoctorFindings()
			if last := all[len(all)-1]; len(all) != tt.findings || last.State != tt.state ||
				!strings.HasPrefix(last.Observation, tt.last) {
				t.Errorf("%+v", all)
			}
		})
	}
}
