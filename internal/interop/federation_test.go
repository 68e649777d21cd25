package interop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/brokers"
)

// tools are the programs that the tests run.
type tools struct{ dir, python string }

// findTools builds the daemons and finds the rest. Without a program it skips the test, but not in CI.
func findTools(t *testing.T) tools {
	t.Helper()
	x := tools{dir: t.TempDir(), python: findPython(t)}
	build := exec.Command("go", "build", "-o", x.dir, "./cmd/agentd", "./cmd/coordinator")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return x
}

// findPython returns a Python that has the client's packages: Debian's has, another one earlier in PATH perhaps not.
func findPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import paho.mqtt.client, cryptography").Run() == nil {
			return python
		}
	}
	missing(t, "python3 with the packages paho-mqtt and cryptography")
	return ""
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what + " is not installed, and CI needs it")
	}
	t.Skip(what + " is not installed; `make deps` installs it")
}

// startBroker returns the host:port of a Mosquitto that listens there.
func startBroker(t *testing.T) string {
	t.Helper()
	m := brokers.NewMosquitto(t, []byte(brokers.Open))
	m.Start(t)
	return m.Address
}

// newKey makes a key file, and returns it and the public key.
func (x *tools) newKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key.pem")
	out, err := exec.Command(filepath.Join(x.dir, "agentd"), "key", "new", file).Output()
	if err != nil {
		t.Fatalf("agentd key new: %v", err)
	}
	return file, strings.TrimSpace(string(out))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// problem is what a federation learns: y = intercept + Σ slopes_j x_j, where the features beyond the slopes mean
// nothing. task holds further keys of the coordinator's section task.
type problem struct {
	features     []string
	slopes       []float64
	intercept    float64
	rows, rounds int
	task         string
}

// data returns an agent's rows as CSV. The columns are in another order than the features, and one is of no use.
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

// federation is three agents, named a, b and python, under a coordinator.
type federation struct {
	coordinator, python *process
	stateDir            string
}

// start runs a federation that needs all its agents. seeds are those of their data.
func (x *tools) start(t *testing.T, p *problem, seeds map[string]uint64) *federation {
	t.Helper()
	addr := startBroker(t)
	coordinatorKey, coordinatorPublic := x.newKey(t)
	f := &federation{stateDir: t.TempDir()}
	var agents []string
	var run []func()
	for _, id := range []string{"a", "b", "python"} {
		key, public := x.newKey(t)
		agents = append(agents, id+" "+public+"\n")
		data := write(t, id+".csv", p.data(seeds[id]))
		run = append(run, func() {
			if id == "python" {
				f.python = start(t, id, x.python, "-B", "client.py", "--broker", addr, "--federation", "interop", "--id", id,
					"--key", key, "--coordinator-key", coordinatorPublic, "--data", data)
				return
			}
			start(t, id, filepath.Join(x.dir, "agentd"), "run", "--config", write(t, "agentd.yaml", fmt.Sprintf(
				agentConfig, id, t.TempDir(), addr, key, coordinatorPublic, data)))
		})
	}
	f.coordinator = start(t, "coordinator", filepath.Join(x.dir, "coordinator"), "run", "--config", write(t, "coordinator.yaml",
		fmt.Sprintf(coordinatorConfig, f.stateDir, addr, coordinatorKey, write(t, "agents.keys", strings.Join(agents, "")),
			p.task, p.rounds)), "--set", "task.features="+strings.Join(p.features, ","))
	for _, agent := range run {
		agent()
	}
	return f
}

const agentConfig = `
federation: interop
id: %s
state_dir: %s
broker: {url: tcp://%s}
identity: {key_file: %s, coordinator_key: %q}
data: {csv: %s}
metrics: {listen: ""}
`

const coordinatorConfig = `
federation: interop
state_dir: %s
broker: {url: tcp://%s}
identity: {key_file: %s, agents_file: %s}
task:
  name: interop
  target: y
%s
round:
  participants: 3
  quorum: 3
  rounds: %d
  gather: {target: 3, minimum: 3, within: 60s, spread: 0s}
  deadline: 60s
metrics: {listen: ""}
log: {level: debug, format: json}
`

// await returns when the run is finished, and fails the test if anything on the way was not smooth.
func (f *federation) await(t *testing.T) {
	t.Helper()
	f.coordinator.await(t, `"msg":"run finished"`)
	for _, e := range f.coordinator.events(t, "message not used", "agent declined", "agent cannot do the task", "update refused", "round abandoned") {
		t.Errorf("the coordinator says %q of %s in round %d", e.Msg, e.Agent, e.Round)
	}
}
