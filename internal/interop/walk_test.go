package interop

import (
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// walk is the Python source of a trainer whose parameters w move towards fixed goals between 1 and 2. Each local step
// covers a fraction of the remaining distance. The fraction is the step size, so the result of a run is known. Each fit
// adds rows.
const walk = `
import os
import numpy as np
from fedmesh.trainer import Trainer

class Walk(Trainer):
    def __init__(self, folder, size, growth="0"):
        self.folder, self.growth, self.count = folder, int(growth), 20
        self.goal = np.linspace(1, 2, int(size), dtype=np.float32)

    def begin(self, start):
        with open(os.path.join(self.folder, "begun"), "a") as file:
            print(start.federation, os.getpid(), file=file)

    def rows(self):
        return self.count

    def risk(self, params):
        return ((params["w"] - self.goal) ** 2).mean() / 2

    def fit(self, params, job):
        for step in job:
            params["w"] += np.float32(job.step_size) * (self.goal - params["w"])
        self.count += self.growth

    def parameters(self):
        return {"w": np.zeros_like(self.goal)}
`

// walker is a federation of one device with the trainer walk.
type walker struct {
	tools
	e       *example
	initial string // path of the initial model
	f       *testkit.Federation
}

// newWalker prepares a federation with device one, whose trainer receives the folder and the given arguments.
func newWalker(t *testing.T, arguments ...string) *walker {
	t.Helper()
	w := &walker{tools: findTools(t)}
	w.f = testkit.NewFederation(t, w.programs, "walk", brokers.OpenMosquitto(t))
	w.f.Write(t, "walk.py", walk)
	w.e = newExample(t, w.python, append([]string{"walk:Walk", w.f.Dir}, arguments...)...)
	w.initial = w.e.initial(t, w.f)
	return w
}

// lead writes the configuration of a federation that trains the model of walk. line is the device's line in the
// coordinator's list of keys.
func (w *walker) lead(t *testing.T, f *testkit.Federation, line, task, round string) {
	t.Helper()
	f.ConfigureCoordinator(t,
		"{name: walk, model: {kind: external, trainer: walk, initial: "+w.initial+"}, steps: {budget: 1h, "+
			"min: 1, max: 1}, "+task+"}", line, "{participants: 1, quorum: 1, deadline: 5m, gather: {target: 1, "+
			"minimum: 1, within: 60s, spread: 0s}, "+round+"}")
}

// run runs the coordinator until the run has finished, and checks the newest model. want(i) is the expected value of
// parameter i as a fraction of its goal.
func (w *walker) run(t *testing.T, f *testkit.Federation, want func(i int) float64, more ...string) {
	t.Helper()
	lead := f.Daemon(t, "coordinator", "coordinator", more...)
	lead.AwaitFor(t, 5*testkit.Patience, "run finished")
	lead.Stop(t, syscall.SIGTERM, 0)
	w.check(t, f, 1e-6, want)
}

func (w *walker) check(t *testing.T, f *testkit.Federation, within float64, want func(i int) float64) {
	t.Helper()
	path := f.Path("exported.safetensors")
	f.MustRun(t, "coordinator", "model", "export", "--out", path, "--state-dir", f.Path("state"))
	model := parametersOf(t, path, "w")
	for i, x := range model {
		goal := 1 + float64(i)/float64(max(1, len(model)-1))
		if math.Abs(x-want(i)*goal) > within {
			t.Errorf("element %d of %d is %v, want %v", i, len(model), x, want(i)*goal)
			return
		}
	}
}

// TestSharedTrainer runs one device in two federations that use the same trainer configuration. Each federation must
// have its own trainer process and its own model.
func TestSharedTrainer(t *testing.T) {
	t.Parallel()
	w := newWalker(t, "5")
	other := testkit.NewFederation(t, w.programs, "other", w.f.Broker)
	line := "one " + w.f.MustRun(t, "agentd", "key", "new", w.f.Path("one.key"))
	w.lead(t, w.f, line, "step_size: {constant: 0.5}", "rounds: 4")
	w.lead(t, other, line, "step_size: {constant: 0.25}", "rounds: 5")
	w.f.Write(t, "one.yaml", fmt.Sprintf(`
id: one
state_dir: %s
broker: {url: %s}
identity: {key_file: %s}
metrics: {listen: ""}
federations:
  - {federation: walk, identity: {coordinator_key: %q}}
  - {federation: other, identity: {coordinator_key: %q}}
`, w.f.Path("state-one"), w.f.Broker, w.f.Path("one.key"), w.f.CoordinatorKey, other.CoordinatorKey)+
		w.e.trainers("walk", w.f.Dir))
	endsWell(t, w.f.Daemon(t, "agentd", "one"))
	second := other.Daemon(t, "coordinator", "coordinator")
	w.run(t, w.f, func(int) float64 { return 1 - math.Pow(0.5, 4) })
	second.Await(t, "run finished")
	second.Stop(t, syscall.SIGTERM, 0)
	w.check(t, other, 1e-6, func(int) float64 { return 1 - math.Pow(0.75, 5) })
	begun, err := os.ReadFile(w.f.Path("begun"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(begun))
	if len(lines) != 4 || lines[0] == lines[2] || lines[1] == lines[3] {
		t.Errorf("the programs that began are\n%s", begun)
	}
}

// device starts device one of federation w.f, with further sections in agentd.yaml. It returns the device's line in the
// coordinator's list of keys.
func (w *walker) device(t *testing.T, sections ...string) string {
	t.Helper()
	line := w.f.AddAgent(t, "one", "unused\n0\n")
	configure(t, w.f, "one", w.e.trainers("walk", w.f.Dir)+strings.Join(sections, ""))
	endsWell(t, w.f.Daemon(t, "agentd", "one"))
	return line
}

// TestFromModel starts new runs from a model of the previous run, and from a model in a file.
func TestFromModel(t *testing.T) {
	t.Parallel()
	w := newWalker(t, "5")
	w.lead(t, w.f, w.device(t), "step_size: {constant: 0.5}", "rounds: 2")
	left := func(steps float64) func(int) float64 { return func(int) float64 { return 1 - math.Pow(0.5, steps) } }
	w.run(t, w.f, left(2))
	w.run(t, w.f, left(3), "--from", "1") // train two more rounds after model 1
	w.f.MustRun(t, "coordinator", "model", "export", "--out", w.f.Path("third"), "--state-dir", w.f.Path("state"))
	w.run(t, w.f, left(5), "--from", w.f.Path("third"))
	w.run(t, w.f, left(2), "--new-run")
}

// TestPackedTrainer compresses the updates of a trainer with lossy codecs. With the codec top_k, the error feedback
// must lose nothing except rounding errors.
func TestPackedTrainer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		codec  string
		within float64
		want   func(i int) float64
	}{
		{"int8", 0.03, func(int) float64 { return 0.75 }},
		// The first round sends three elements. The second round sends three other elements, each of which has
		// accumulated the changes of two rounds.
		{"top_k:0.3", 1e-6, func(i int) float64 { return []float64{0, 0, 0, 0, 1, 1, 1, 0.5, 0.5, 0.5}[i] }},
	} {
		t.Run(c.codec, func(t *testing.T) {
			t.Parallel()
			w := newWalker(t, "10")
			w.lead(t, w.f, w.device(t), "step_size: {constant: 0.5}, codec: \""+c.codec+"\"", "rounds: 2")
			lead := w.f.Daemon(t, "coordinator", "coordinator")
			endsWell(t, lead)
			lead.Await(t, "run finished")
			w.check(t, w.f, c.within, c.want)
		})
	}
}
