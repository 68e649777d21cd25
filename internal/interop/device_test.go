package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestDevice has examples/device.py, which is no agentd, train beside agentd with examples/logistic.py.
func TestDevice(t *testing.T) {
	t.Parallel()
	x := findTools(t)
	f := testkit.NewFederation(t, x.programs, "device", "tcp://"+startBroker(t))
	e := newExample(t, x.python, "logistic:Logistic", "rows.csv", "y")
	f.Write(t, "rows.csv", classes(1))
	keys := f.AddAgent(t, "a", "unused\n0\n") + f.AddAgent(t, "b", classes(2))
	configure(t, f, "a", e.trainers("logistic", f.Dir))
	f.Lead(t, "{name: device, model: {kind: external, trainer: logistic, initial: "+e.initial(t, f)+"}, "+
		"batch_size: 8, step_size: {constant: 0.5, normalize: false}, steps: {budget: 1h, min: 4, max: 4}}", keys,
		"{participants: 2, quorum: 2, rounds: 3, deadline: 60s, gather: {target: 2, minimum: 2, within: 60s, "+
			"spread: 0s}}", "log: {format: json}")
	lead := f.Daemon(t, "coordinator", "coordinator")
	endsWell(t, lead)
	endsWell(t, f.Daemon(t, "agentd", "a"))
	cmd := exec.Command(x.python, "-B", filepath.Join("..", "..", "packaging", "python", "examples", "device.py"),
		f.Broker, f.Name, "b", f.Path("b.key"), f.CoordinatorKey, f.Path("b.csv"), "y")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+e.path)
	device := testkit.Start(t, cmd)
	endsWell(t, device)
	lead.Await(t, `"msg":"run finished"`)
	for round := 1; round <= 3; round++ {
		device.Await(t, fmt.Sprintf("round %d: accepted", round))
	}
	if log := lead.Log(); strings.Contains(log, `"msg":"agent declined"`) || strings.Contains(log, "abandoned") {
		t.Error(log)
	}
}
