package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/store"
)

// folder creates a state folder with models of two runs and without a journal.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for run, versions := range map[string][]uint64{"1000": {3, 4}, "2000": {0, 1}} {
		if err := os.MkdirAll(filepath.Join(dir, "models", run), 0o700); err != nil {
			t.Fatal(err)
		}
		models, err := store.LocalDisk.OpenModelFolder(filepath.Join(dir, "models", run))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			file,
				err := store.EncodeSafetensors([]store.Tensor{{Name: "w", DType: "F32", Shape: []int{1},
				Data: make([]byte, 4)}},
				map[string]string{"task": "air", "from": map[string]string{"2000": "1000/4"}[run]})
			if err == nil {
				err = models.Put(v, [32]byte{byte(v)}, true, file)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestModelsOfAnyRun checks that the models of each run are listed and exported, even without a journal.
func TestModelsOfAnyRun(t *testing.T) {
	dir := folder(t)
	for _, tt := range []struct {
		command string
		code    int
		says    []string
	}{
		{"list", 0, []string{"2000/0", "2000/1", "HELD-OUT RISK"}},
		{"list --run 1000", 0, []string{"1000/3", "1000/4"}},
		{"show", 0, []string{"version 1 task", "from 1000/4"}},
		{"show 1000/3", 0, []string{"version 3 task"}},
		{"show 3 --run 1000", 0, []string{"version 3 task"}},
		{"show 3", 1, []string{"no such model: version 3"}},
		{"show 7/3", 1, []string{"no models found for run 7"}},
		{"show x/3", 2, []string{`unknown model "x/3": specify VERSION or RUN/VERSION`}},
		{"export 1000/4 -o -", 0, []string{"__metadata__"}},
	} {
		code, out, stderr := clitest.Run(rootCommand(),
			append(append([]string{"model"}, strings.Fields(tt.command)...), "--state-dir", dir)...)
		for _, want := range tt.says {
			if code != tt.code || !strings.Contains(strings.Join(strings.Fields(out+stderr), " "), want) {
				t.Errorf("model %s: exit status %d, %s%s; want %d and %q", tt.command, code, out, stderr, tt.code, want)
			}
		}
	}
}

// TestModelListShowsRounds checks that a model is listed with its round, time and risks. It also checks that --config
// selects the state folder.
func TestModelListShowsRounds(t *testing.T) {
	dir := folder(t)
	line := `{"time":"2026-03-01T12:00:00Z","run":2000,"round":17,"kind":"training","version":1,"risk":0.25,` +
		`"held_out_risk":0.5}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "history.jsonl"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	config := write(t, "coordinator.yaml", "state_dir: "+dir+"\n")
	code, out, stderr := clitest.Run(rootCommand(), "model", "list", "--config", config)
	text := strings.Join(strings.Fields(out), " ")
	if code != 0 || !strings.Contains(text, "2000/1 17 2026-03-01 12:00:00 0.25 0.5") ||
		!strings.Contains(text, "2000/0 - - - -") {
		t.Errorf("exit status %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := clitest.Run(rootCommand(), "model", "list", "--config", config, "--state-dir",
		dir); code != 2 || !strings.Contains(stderr, "not both") {
		t.Errorf("both flags: exit status %d, %s", code, stderr)
	}
}

// taskRuns runs `coordinator task runs` and returns its output with single spaces.
func taskRuns(t *testing.T, dir string) (code int, out, stderr string) {
	t.Helper()
	code, out, stderr = clitest.Run(rootCommand(), "task", "runs", "--config",
		write(t, "coordinator.yaml", "state_dir: "+dir+"\n"))
	return code, strings.Join(strings.Fields(out), " "), stderr
}

// TestTaskRuns checks that runs are listed without a running coordinator.
func TestTaskRuns(t *testing.T) {
	code, out, stderr := taskRuns(t, folder(t))
	if code != 0 || out != "RUN MODELS NEWEST TASK FROM 1000 2 1000/4 air 2000 2 2000/1 air 1000/4" {
		t.Errorf("exit status %d, %s%s", code, out, stderr)
	}
}

// TestNoModels checks that a folder without models is reported, and that a run whose models are all damaged is listed
// with 0 models.
func TestNoModels(t *testing.T) {
	if code, out, stderr := taskRuns(t, t.TempDir()); code != 1 || out != "" ||
		!strings.Contains(stderr, "contains no models") {
		t.Errorf("exit status %d, %s%s", code, out, stderr)
	}
	dir := folder(t)
	damaged, err := filepath.Glob(filepath.Join(dir, "models", "2000", "*.safetensors"))
	if err != nil || len(damaged) != 2 {
		t.Fatal(damaged, err)
	}
	for _, path := range damaged {
		if err := os.Truncate(path, 1); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, stderr := taskRuns(t, dir); code != 0 || !strings.Contains(out, "2000 0 none") {
		t.Errorf("exit status %d, %s%s", code, out, stderr)
	}
}

// TestRunWithoutJournal checks that if models exist but the journal is missing, `coordinator run` returns an error that
// a restart cannot solve. The error must name the commands from which the operator can choose.
func TestRunWithoutJournal(t *testing.T) {
	dir := folder(t)
	key := filepath.Join(t.TempDir(), "key")
	code, public, stderr := clitest.Run(rootCommand(), "key", "new", key)
	if code != 0 {
		t.Fatal(stderr)
	}
	file := write(t, "coordinator.yaml", `
federation: air
state_dir: `+dir+`
broker: {url: "tcp://127.0.0.1:1"}
identity: {key_file: `+key+`, agents_file: `+write(t, "agents.keys", "a "+public)+`}
task: {name: t, features: [a], target: b}
round: {participants: 1, quorum: 1, gather: {minimum: 1}}
metrics: {listen: ""}
`)
	for _, damage := range []string{"", "rubbish"} {
		if damage != "" {
			if err := os.WriteFile(filepath.Join(dir, "run"), []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := clitest.Run(rootCommand(), "run", "--config", file)
		for _, want := range []string{filepath.Join(dir, "run"), "`coordinator run --from 2000/1`",
			"`coordinator run --new-run`"} {
			if code != 78 || !strings.Contains(stderr, want) {
				t.Errorf("exit status %d, %s; want 78 and %q", code, stderr, want)
			}
		}
		if code, _, stderr := clitest.Run(rootCommand(), "run", "--config", file, "--from", "1000/9"); code != 78 ||
			!strings.Contains(stderr, "no such model: version 9") {
			t.Errorf("--from a model that is not there: exit status %d, %s", code, stderr)
		}
	}
}
