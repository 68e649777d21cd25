package interop

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// logistic is the Python source of a trainer that computes the full gradient of logistic regression, like agentd's
// built-in learner. On device c it crashes in its first fit.
const logistic = `
import os, sys
import numpy as np
from fedmesh.trainer import Evaluated, Trainer

class Logistic(Trainer):
    def __init__(self, folder):
        self.folder = folder

    def begin(self, start):
        self.crash = start.device == "c"
        data = np.loadtxt(os.path.join(self.folder, start.device + ".csv"), delimiter=",", skiprows=1)
        self.x, self.y = data[:, :2], 2 * data[:, 2] - 1

    def rows(self):
        return len(self.x)

    def can(self):
        return super().can() | {"mixing"}

    def margin(self, params):
        return self.y * (self.x @ params["layer0.weight"][0].astype(float) + params["layer0.bias"][0])

    def risk(self, params):
        return np.logaddexp(0, -self.margin(params)).mean()

    def fit(self, params, job):
        mark = os.path.join(self.folder, "crashed")
        if self.crash and not os.path.exists(mark):
            open(mark, "w").close()
            print("out of memory", file=sys.stderr)
            os._exit(7)
        for step in job:
            pull = -self.y / (1 + np.exp(self.margin(params))) / len(self.y)
            params["layer0.weight"] -= job.step_size * (pull @ self.x)[None].astype(np.float32)
            params["layer0.bias"] -= np.float32(job.step_size * pull.sum())

    def evaluate(self, params):
        return Evaluated(rows=len(self.y), risk=self.risk(params), metrics={"accuracy": (self.margin(params) > 0).mean()})

    def parameters(self):
        return {"layer0.weight": np.zeros((1, 2)), "layer0.bias": np.zeros(1)}
`

// TestTrainers trains a logistic regression in two federations: one with a Python trainer on three devices, and one
// with agentd's built-in learner on three devices. The data are the same, so the models must be equal. One Python
// trainer crashes, so one round is lost, or one second if the devices mix parameters. In one case, a device runs the
// Python agent fedmesh.agent instead of agentd.
func TestTrainers(t *testing.T) {
	t.Parallel()
	x, python := findTools(t), findPython(t, "numpy")
	source, err := filepath.Abs(filepath.Join("..", "..", "packaging", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]agreement{
		"fedavg": {round: "participants: 3, quorum: 3", ends: `err="trainer logistic: the trainer has exited"`},
		"feddec": {task: ", mixing: {every: 1, wait: 30s}", agent: "d2d: {uplink: true}\n",
			mesh:  "mesh: {edges: complete}",
			round: "algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 1",
			ends:  "trainer exited"},
		"agent": {round: "participants: 3, quorum: 3", wire: "b",
			ends: `err="trainer logistic: the trainer has exited"`},
		// The bias is a personal parameter, so the devices share only the weights.
		"personal": {round: "participants: 3, quorum: 3", task: ", personal: {layers: [layer0.bias]}", own: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.tools, c.python, c.source = x, python, source
			c.try(t)
		})
	}
}

// agreement describes two federations that must learn the same model. One uses an external trainer, the other uses
// agentd's built-in learner.
type agreement struct {
	tools
	python, source string
	task           string // additional keys of the section task
	round          string // keys of the section round
	agent, mesh    string // additional configuration of each agent (agent) and of the mixing graph (mesh)
	// id of the device that runs fedmesh.agent, with the trainer in the same process, instead of agentd
	wire string
	ends string // log message of the device whose trainer crashes; "" if no trainer crashes
	own  int    // number of personal parameters
}

func (c *agreement) try(t *testing.T) {
	broker := brokers.OpenMosquitto(t)
	own := testkit.NewFederation(t, c.programs, "own", broker)
	with := testkit.NewFederation(t, c.programs, "external", broker)
	with.Write(t, "logistic.py", logistic)
	initial := with.Path("model.safetensors")
	program := []string{c.python, "-B", "-m", "fedmesh.trainer", "logistic:Logistic", with.Dir}
	first := exec.Command(program[0], append(program[1:], "--initial", initial)...)
	first.Dir, first.Env = with.Dir, append(os.Environ(), "PYTHONPATH="+c.source)
	if out, err := first.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.play(t, with, initial, program)
	if c.ends == "" {
		with.Write(t, "crashed", "")
	}
	trainers := fmt.Sprintf("trainers: [{name: logistic, command: [\"%s\"], dir: %s, env: [PYTHONPATH=%s]}]\n",
		strings.Join(program, `", "`), with.Dir, c.source)
	external := c.model(t, with, "{name: classes, model: {kind: external, trainer: logistic, initial: "+initial+"}",
		trainers, func(agents []*testkit.Process) {
			if c.ends != "" {
				agents[2].Await(t, "trainer: out of memory")
				agents[2].Await(t, c.ends)
			}
			agents[0].Await(t, "trainer started")
			status := c.programs.MustRun(t, "agentd", "status", "--config", with.Path("a.yaml"))
			if !strings.Contains(status, "without a sandbox") {
				t.Errorf("the program is not confined here, and the status is\n%s", status)
			}
		})
	want := c.model(t, own, "{name: classes, features: [u, v], target: y, standardize: false, model: {kind: logistic}",
		"", func([]*testkit.Process) {})
	if len(want) != 3-c.own || len(external) != len(want) || norm(want) < 0.1 {
		t.Fatalf("agentd's own model is %v", want)
	}
	for i, w := range want {
		if math.Abs(external[i]-w) > 1e-6 {
			t.Errorf("parameter %d: the program's is %v, agentd's own %v", i, external[i], w)
		}
	}
}

// play runs the check of the trainer protocol, first with the trainer, and then with a trainer that violates the
// protocol.
func (c *agreement) play(t *testing.T, f *testkit.Federation, initial string, program []string) {
	f.Write(t, "a.csv", classes(0))
	shown := c.checkTrainer(t, f, initial, c.source, program, 0)
	for _, want := range []string{`hello      ok     trainer "Logistic", 40 rows`, "fit        ok     3 steps",
		"fit again  ok",
		"mixing     ok", "initial    ok", "evaluate   ok", "stop       ok", "end        ok"} {
		if !strings.Contains(shown, want) {
			t.Errorf("agentd trainer check says no %q:\n%s", want, shown)
		}
	}
	other := f.Write(t, "other.py", "print('Epoch 1/10')\n")
	if shown := c.checkTrainer(t, f, initial, c.source, []string{c.python, other}, 1); !strings.Contains(shown,
		`hello      WRONG  the trainer wrote an invalid frame "Epoch 1/10\n"`) {
		t.Errorf("of a program that speaks otherwise:\n%s", shown)
	}
}

// model runs a federation until the run has finished, and returns the model. task is the beginning of the task section.
// device is a configuration section that every device gets. watch is called once, after all programs have been started.
func (c *agreement) model(t *testing.T, f *testkit.Federation, task, device string,
	watch func(agents []*testkit.Process)) []float64 {
	ids, keys := []string{"a", "b", "c"}, ""
	for i, id := range ids {
		keys += f.AddAgent(t, id, classes(uint64(i)))
		configure(t, f, id, device+c.agent)
	}
	evaluation, evaluates := "", device != "" && c.wire == ""
	if evaluates {
		evaluation = ", evaluation: {every: 2, min_rows: 40}"
	}
	f.ConfigureCoordinator(t,
		task+c.task+", batch_size: 0, step_size: {constant: 0.5, normalize: false}, steps: {budget: 1h, min: 4, "+
			"max: 4}}", keys, "{"+c.round+", rounds: 6, deadline: 60s, gather: {target: 3, minimum: 3, within: 60s, "+
			"spread: 0s}"+evaluation+"}", c.mesh)
	lead := f.Daemon(t, "coordinator", "coordinator")
	endsWell(t, lead)
	var agents []*testkit.Process
	for _, id := range ids {
		if id == c.wire && device != "" {
			agents = append(agents, c.inPython(t, f, id, "--trainer", "logistic", "logistic:Logistic", f.Dir))
			continue
		}
		agents = append(agents, f.Daemon(t, "agentd", id))
		endsWell(t, agents[len(agents)-1])
	}
	watch(agents)
	lead.Await(t, "run finished")
	export := f.Path("exported.safetensors")
	c.programs.MustRun(t, "coordinator", "model", "export", "--out", export, "--state-dir", f.Path("state"))
	w := parametersOf(t, export, "layer0.weight", "layer0.bias")
	if evaluates {
		c.evaluated(t, lead, w)
	}
	return w
}

// evaluated checks the evaluation of the last model by the trainers. The combined result of the devices must equal the
// result on the rows of all devices together.
func (c *agreement) evaluated(t *testing.T, lead *testkit.Process, w []float64) {
	t.Helper()
	said := "model evaluated on the held-out rows of agents version=6 agents=3 present=3 rows=120 risk="
	if c.own > 0 { // the biases are personal parameters, which stay on the devices
		lead.Await(t, said)
		return
	}
	risk, right := 0.0, 0
	for device := range uint64(3) {
		for line := range strings.Lines(strings.TrimPrefix(classes(device), "u,v,y\n")) {
			var u, v, y float64
			if _, err := fmt.Sscanf(line, "%f,%f,%f", &u, &v, &y); err != nil {
				t.Fatal(err)
			}
			margin := (2*y - 1) * (w[0]*u + w[1]*v + w[2])
			risk += math.Log1p(math.Exp(-margin)) / 120
			if margin > 0 {
				right++
			}
		}
	}
	lead.Await(t, fmt.Sprintf("%s%.4g accuracy=%.4g", said, risk, float64(right)/120))
}

// TestExample checks the trainer examples/logistic.py of the Python package with `agentd trainer check`.
func TestExample(t *testing.T) {
	t.Parallel()
	x := findTools(t)
	python := findPython(t, "numpy")
	f := testkit.NewFederation(t, x.programs, "example", "")
	f.Write(t, "rows.csv", classes(1))
	e := newExample(t, python, "logistic:Logistic", "rows.csv", "y")
	initial := e.initial(t, f)
	shown := x.checkTrainer(t, f, initial, e.path, e.program, 0)
	for _, want := range []string{`ok     trainer "logistic regression", 32 rows`, "mixing     ok", "proximal   ok",
		"evaluate   ok"} {
		if !strings.Contains(shown, want) {
			t.Errorf("agentd trainer check says no %q:\n%s", want, shown)
		}
	}
}

// example is one of the trainers in packaging/python/examples.
type example struct {
	path    string // path of the Python interpreter
	program []string
}

func newExample(t *testing.T, python string, target ...string) *example {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "packaging", "python"))
	if err != nil {
		t.Fatal(err)
	}
	return &example{filepath.Join(folder, "src") + ":" + filepath.Join(folder, "examples"),
		append([]string{python, "-B", "-m", "fedmesh.trainer"}, target...)}
}

// trainers returns the configuration section trainers of agentd.yaml for the example. It restricts the example's
// libraries to one thread each, because concurrent threads would slow each other down.
func (e *example) trainers(name, dir string) string {
	return fmt.Sprintf("trainers: [{name: %s, command: [\"%s\"], dir: %s, env: [%q, OMP_NUM_THREADS=1]}]\n", name,
		strings.Join(e.program, `", "`), dir, "PYTHONPATH="+e.path)
}

func configure(t *testing.T, f *testkit.Federation, id, sections string) {
	t.Helper()
	text, err := os.ReadFile(f.Path(id + ".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, id+".yaml", string(text)+sections)
}

// run runs Python with the given arguments in the folder of a federation, and returns the output.
func (e *example) run(t *testing.T, f *testkit.Federation, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(e.program[0], arguments...)
	cmd.Dir, cmd.Env = f.Dir, append(os.Environ(), "PYTHONPATH="+e.path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// initial writes the initial model of the example to a file and returns the path of the file.
func (e *example) initial(t *testing.T, f *testkit.Federation) string {
	t.Helper()
	path := f.Path("initial.safetensors")
	e.run(t, f, append(e.program[1:], "--initial", path)...)
	return path
}

// checkTrainer runs `agentd trainer check` for a trainer program, in the folder of a federation.
func (x *tools) checkTrainer(t *testing.T, f *testkit.Federation, initial, source string, program []string,
	code int) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(string(x.programs), "agentd"), append([]string{"trainer", "check", "--initial",
		initial, "--device", "a", "--dir", f.Dir, "--env", "PYTHONPATH=" + source, "--"}, program...)...)
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Errorf("agentd trainer check: %v, want the exit status %d\n%s", err, code, out)
	}
	return string(out)
}

// classes returns CSV rows with two features and a class. The class depends on the features, with noise.
func classes(seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	b.WriteString("u,v,y\n")
	for range 40 {
		u, v := rng.NormFloat64(), rng.NormFloat64()
		y := 0
		if u-2*v+0.5+rng.NormFloat64() > 0 {
			y = 1
		}
		fmt.Fprintf(&b, "%.3f,%.3f,%d\n", u, v, y)
	}
	return b.String()
}

// parametersOf returns the parameters in a model file, in the order of the tensor names.
func parametersOf(t *testing.T, path string, names ...string) (all []float64) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, tensor := range tensors {
			for at := 0; tensor.Name == name && at < len(tensor.Data); at += 4 {
				all = append(all, float64(math.Float32frombits(binary.LittleEndian.Uint32(tensor.Data[at:]))))
			}
		}
	}
	return all
}

func norm(x []float64) (sum float64) {
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}
