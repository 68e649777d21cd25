package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// client lists the Python modules that fedmesh.agent imports.
var client = []string{"numpy", "paho.mqtt.client", "cryptography"}

// tools holds the external programs of the tests.
type tools struct {
	programs testkit.Programs
	python   string
}

var programs testkit.Programs

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, filepath.Join("..", ".."), &programs)) }

// findTools finds the external programs. If a program is missing, it skips the test; in CI it fails the test.
func findTools(t *testing.T) tools {
	t.Helper()
	return tools{python: findPython(t, client...), programs: programs}
}

// findPython returns a Python interpreter that has the given modules. Debian's interpreter has them, but another
// interpreter that precedes it in PATH may not.
func findPython(t *testing.T, modules ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("Python is a process")
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return python
		}
	}
	missing(t, "python3 with "+strings.Join(modules, " and "))
	return ""
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what + " is not installed, and CI needs it")
	}
	t.Skip(what + " is not installed; `make deps` installs it")
}

// problem is a regression task y = intercept + Σ slopes_j x_j. If there are more features than slopes, the remaining
// features have no influence on y. The field task contains further keys of the configuration section task.
type problem struct {
	features     []string
	slopes       []float64
	intercept    float64
	rows, rounds int
	task         string
}

// data returns an agent's rows as CSV. The order of the columns differs from the order of the features, and one column
// is unused.
func (p *problem) data(seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	var s strings.Builder
	s.WriteString("note,y," + strings.Join(p.features, ",") + "\n")
	for range p.rows {
		y, x := p.intercept+0.01*rng.NormFloat64(), make([]string, len(p.features))
		for j := range x {
			v := float64(j%5) + float64(1+j%3)*rng.NormFloat64()
			x[j] = fmt.Sprintf("%.4f", v)
			if j < len(p.slopes) {
				y += p.slopes[j] * v
			}
		}
		fmt.Fprintf(&s, "\"a, b\",%.4f,%s\n", y, strings.Join(x, ","))
	}
	return s.String()
}

// federation is a coordinator with three agents, named a, b and python.
type federation struct {
	*testkit.Federation
	coordinator, python *testkit.Process
}

// start starts a federation whose rounds require all agents. seeds contains the seed of each agent's data. At the end
// of the test, each process must stop on request without an error.
func (x *tools) start(t *testing.T, p *problem, seeds map[string]uint64) *federation {
	t.Helper()
	f := &federation{Federation: testkit.NewFederation(t, x.programs, "interop", brokers.OpenMosquitto(t))}
	ids := []string{"a", "b", "python"}
	var keys strings.Builder
	for _, id := range ids {
		keys.WriteString(f.AddAgent(t, id, p.data(seeds[id])))
	}
	f.ConfigureCoordinator(t, "\n  name: interop\n  target: y\n"+p.task, keys.String(),
		fmt.Sprintf("{participants: 3, quorum: 3, rounds: %d, gather: {target: 3, minimum: 3, within: 60s, spread: "+
			"0s}, deadline: 60s}", p.rounds),
		"log: {level: debug, format: json}")
	f.coordinator = f.Daemon(t, "coordinator", "coordinator", "--set", "task.features="+strings.Join(p.features, ","))
	endsWell(t, f.coordinator)
	for _, id := range ids[:2] {
		endsWell(t, f.Daemon(t, "agentd", id))
	}
	f.python = x.inPython(t, f.Federation, "python", "--data", f.Path("python.csv"))
	return f
}

// inPython starts the Python agent fedmesh.agent for a device of the federation.
func (x *tools) inPython(t *testing.T, f *testkit.Federation, id string, more ...string) *testkit.Process {
	t.Helper()
	cmd := exec.Command(x.python, append([]string{"-B", "-m", "fedmesh.agent", "--broker", f.Broker, "--id", id,
		"--federation", f.Name, "--key", f.Path(id + ".key"), "--coordinator-key", f.CoordinatorKey}, more...)...)
	cmd.Dir, cmd.Env = f.Dir, append(os.Environ(), "PYTHONPATH="+newExample(t, "").path)
	p := testkit.Start(t, cmd)
	endsWell(t, p)
	return p
}

// endsWell registers a cleanup that stops the process at the end of the test and checks that it stops without an error.
func endsWell(t *testing.T, p *testkit.Process) {
	t.Cleanup(func() { p.Stop(t, syscall.SIGTERM, 0) })
}

// await waits until the run has finished. It fails the test if a message was dropped, an agent declined a round, or a
// round was abandoned.
func (f *federation) await(t *testing.T) {
	t.Helper()
	f.coordinator.Await(t, `"msg":"run finished"`)
	for _, e := range f.events(t, "message dropped", "agent declined the round", "agent cannot perform the task",
		"update refused",
		"round abandoned") {
		t.Errorf("the coordinator says %q of %s in round %d", e.Msg, e.Agent, e.Round)
	}
}

// event is one line of the coordinator's JSON log.
type event struct {
	Msg, Agent      string
	Round, Accepted int
	Norm, Risk      float64
}

// events returns the lines of the coordinator's log whose message is one of msgs.
func (f *federation) events(t *testing.T, msgs ...string) (found []event) {
	t.Helper()
	for line := range strings.Lines(f.coordinator.Log()) {
		for _, msg := range msgs {
			if !strings.Contains(line, `"msg":"`+msg+`"`) {
				continue
			}
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			found = append(found, e)
		}
	}
	return found
}
