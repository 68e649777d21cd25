package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/lab/reproduce"
)

func TestReproduceOne(t *testing.T) {
	code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "lab-3", "--quick")
	if code != 0 || !strings.Contains(stdout, "lab-3  holds") || strings.Contains(stdout, "msd") {
		t.Errorf("exit status %d, %s\n%s", code, stdout, stderr)
	}
	code, _, stderr = clitest.Run(rootCommand(), "reproduce", "lab-9")
	if code != 2 || !strings.Contains(stderr, `"lab-9"`) || !strings.Contains(stderr, "lab-1, lab-2") {
		t.Errorf("unknown id: exit status %d, %s", code, stderr)
	}
	_, stdout, _ = clitest.Run(rootCommand(), "reproduce", "sampling", "bias", "--quick", "--json", "--set",
		"sampling.means=[[1],[2]]", "--set", "sampling.variances=[0,0]",
		"--set", "bias.step_size=0.02")
	if !strings.Contains(stdout, `"without_L1_theory":0.25,`) || strings.Contains(stdout, "without_L3") ||
		!strings.HasPrefix(stdout, `{"id":"bias","holds":true,"seconds":`) {
		t.Errorf("with other numbers: %s", stdout)
	}
	for setting, want := range map[string]string{
		"sampling.mean=1": "means, trials, variances", "sampling.trials=x": "sampling.trials",
		"lab-3.runs=2": `the experiment "lab-3", which is not selected`,
		"sampling=2":   "must have the form ID.KEY=VALUE", "sampling.trials": "must have the form ID.KEY=VALUE",
	} {
		if code, _, stderr := clitest.Run(rootCommand(), "reproduce", "sampling", "--set", setting); code != 2 ||
			!strings.Contains(stderr, want) {
			t.Errorf("--set %s: exit status %d, %s", setting, code, stderr)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := clitest.Run(rootCommand(), "reproduce", "sampling", "--quick", "--out", file); code != 1 ||
		!strings.Contains(stderr, "--out") {
		t.Errorf("a file for a folder: exit status %d, %s", code, stderr)
	}
}

// TestReproduceFails checks that a claim that does not hold, or an interrupted experiment, is reported and leads to
// exit status 1.
func TestReproduceFails(t *testing.T) {
	broken := reproduce.Lab3()
	// the false claim "one local step is better than ten"
	broken.Claims[0].NumeratorCase, broken.Claims[0].DenominatorCase = 1, 0
	broken.Runs, broken.Window = 8, 100
	impossible := reproduce.Lab4()
	impossible.StepSize = 3
	var out bytes.Buffer
	r := reproduction{stdout: &out}
	r.options.Seed = 1
	err := r.run(t.Context(), []reproduce.Experiment{broken, impossible})
	if err == nil || !strings.Contains(err.Error(), "2 of 2 published claims were not reproduced: lab-3, lab-4") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"lab-3  DOES NOT HOLD", "FAILS K = 100, L = 10, E = 10",
		"the experiment runs: lab-4"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(err.Error(), "the experiment runs") {
		t.Errorf("told twice: %v", err)
	}
	code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "lab-4", "--json", "--set", "lab-4.step_size=3")
	if code != 1 || !strings.HasPrefix(stdout, `{"id":"lab-4","holds":false`) ||
		!strings.Contains(stderr, "lab-4: the experiment runs: ") || !strings.Contains(stderr, "stability limit") {
		t.Errorf("in JSON: exit status %d, %s\n%s", code, stdout, stderr)
	}
}

// stopping is an experiment during which Ctrl-C is simulated.
type stopping struct {
	reproduce.Experiment
	press func()
}

func (s stopping) Run(ctx context.Context, o reproduce.Options) (*reproduce.Report, error) {
	s.press()
	return s.Experiment.Run(ctx, o)
}

// TestReproduceInterrupted checks that the outcomes of completed experiments are kept after an interruption, and that
// the report is marked as incomplete.
func TestReproduceInterrupted(t *testing.T) {
	ctx, press := context.WithCancel(t.Context())
	defer press()
	var out bytes.Buffer
	r := reproduction{stdout: &out, out: t.TempDir()}
	r.options.Seed, r.options.Quick = 1, true
	err := r.run(ctx, []reproduce.Experiment{reproduce.Lab3(), stopping{reproduce.Lab4(), press}, reproduce.Lab3()})
	if err == nil || err.Error() != "interrupted: 1 of 3 experiments completed" {
		t.Errorf("error %v", err)
	}
	page, err := os.ReadFile(filepath.Join(r.out, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Interrupted: 2 more experiments were not run", "1 of 1 claims hold",
		`<section id="lab-3">`} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("report.html has no %q", want)
		}
	}
	if want := "wrote the report to " + filepath.Join(r.out, "report.html"); !strings.Contains(out.String(), want) {
		t.Errorf("%q does not say %q", out.String(), want)
	}
}
