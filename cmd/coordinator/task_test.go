package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
)

const taskSection = `
federation: air
identity: {key_file: /none}
task:
  name: pm25
  grid: {step: 1h}
  inputs:
    - {name: pm25, unit: "µg/m³", range: [0, 1000]}
    - {name: wd, classes: [N, S]}
  features: [pm25, hour, wd]
  target: pm25 in 6h
`

// TestTaskShow checks that the command `task show` prints the announced task and needs no key.
func TestTaskShow(t *testing.T) {
	file := write(t, "coordinator.yaml", taskSection)
	code, stdout, stderr := clitest.Run(rootCommand(), "task", "show", "--config", file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d, %s", code, stderr)
	}
	got, err := settings.ReadTask(write(t, "task.yaml", stdout))
	if err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	s := settingsWithoutValidation(coordinatorsettings.Default())
	if err := settings.Load(&s, program, file, nil); err != nil {
		t.Fatal(err)
	}
	if want := s.Task.ToWireTask(false); !bytes.Equal(got.AppendEncoding(nil), want.AppendEncoding(nil)) {
		t.Errorf("shown\n%+v\nwant\n%+v\n%s", got, want, stdout)
	}
}

func TestTaskShowRefuses(t *testing.T) {
	file := write(t, "coordinator.yaml", strings.Replace(taskSection, "6h", "90m", 1))
	if code, _, stderr := clitest.Run(rootCommand(), "task", "show", "--config", file); code != 78 ||
		!strings.Contains(stderr, file+":11:11: task.target") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}

// TestTaskSetKeys checks that --set cannot change the applied task unless a FILE is given, and that `task set` accepts
// only keys of the task.
func TestTaskSetKeys(t *testing.T) {
	file := write(t, "coordinator.yaml", "state_dir: "+t.TempDir()+"\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"apply", "--new-run", "--set", "task.step_size.constant=0.7"}, "coordinator task set KEY=VALUE"},
		{[]string{"set", "broker.url=tcp://b:1"}, "with a key in the section task, round, mesh or predict"},
		{[]string{"set", "task.name"}, "specify KEY=VALUE"},
	} {
		code, _, stderr := clitest.Run(rootCommand(), append(append([]string{"task"}, tt.args...), "--config", file)...)
		if code != 2 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit status %d, %s", tt.args, code, stderr)
		}
	}
}
