package external_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/learner"
)

// played runs the protocol test and returns its findings, one per line, and whether the program has passed.
func played(t *testing.T, cfg external.Config, elements int) (lines []string, good bool) {
	t.Helper()
	trial := external.ProtocolTest{Config: cfg, Device: "pump-7", StepSize: 0.1, Base: make([]float32, elements),
		Layout: []learner.TensorSpec{{Name: "w", Shape: []int{elements}}}, Logger: slog.New(slog.DiscardHandler),
		OnFinding: func(f external.ProtocolTestFinding) {
			text := f.ProtocolPart + ": " + f.Summary
			if f.Problem != nil {
				text = f.ProtocolPart + " is wrong: " + f.Problem.Error()
			}
			lines = append(lines, text)
		}}
	return lines, trial.RunTest(t.Context())
}

// TestTrial checks that the protocol test finds no problem in a correct program, and finds the problem of each faulty
// program.
func TestTrial(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "no rows": "hello is wrong: the trainer reports 0 rows", "NaN": "fit is wrong: training diverged",
		"failed": "fit is wrong: the trainer refused the request: the GPU is away", "idle": "no parameter has changed",
		"garbage": "invalid frame", "no risk": "risk_after",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cfg := external.Config{Command: []string{os.Args[0]}, SilenceTimeout: time.Minute, AllowsNetwork: true,
				Env: []string{modeVariable + "=" + mode, goodVariable + "=" + filepath.Join(t.TempDir(), "never")}}
			lines, good := played(t, cfg, 4)
			if all := strings.Join(lines, "\n"); good != (want == "") || !strings.Contains(all, want) {
				t.Errorf("good: %v, want %q in\n%s", good, want, all)
			}
		})
	}
}

// TestC runs the protocol test with a program in C that was written only from the documentation.
func TestC(t *testing.T) {
	if testing.Short() {
		t.Skip("a C compiler is a process")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("gcc is not installed; `make deps` installs it")
	}
	program := filepath.Join(t.TempDir(), "trainer")
	compile := exec.Command(gcc, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
		"-O2", "-o", program, filepath.Join("testdata", "trainer.c"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines, good := played(t, external.Config{Command: []string{program}, SilenceTimeout: time.Minute,
		AllowsNetwork: true}, 3)
	if !good || len(lines) < 7 {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	if lines, good = played(t, external.Config{Command: []string{program}, SilenceTimeout: time.Minute}, 5); good ||
		!strings.Contains(lines[0], "the task has another model") {
		t.Errorf("another model: %s", strings.Join(lines, "\n"))
	}
}
