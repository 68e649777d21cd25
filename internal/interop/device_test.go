package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestDevicesLeave runs three devices that use the program examples/device.py. Each round selects one device and
// invites only some devices to respond. Every device must leave the broker, return, and participate in a round. At the
// end, the broker must retain no presence message of these devices.
func TestDevicesLeave(t *testing.T) {
	t.Parallel()
	x := findTools(t)
	f := testkit.NewFederation(t, x.programs, "leave", brokers.OpenMosquitto(t))
	e := newExample(t, x.python, "logistic:Logistic", "rows.csv", "y")
	f.Write(t, "rows.csv", classes(1))
	ids, keys := []string{"a", "b", "c"}, ""
	for i, id := range ids {
		keys += f.AddAgent(t, id, classes(uint64(i)))
	}
	f.ConfigureCoordinator(t, "{name: leave, model: {kind: external, trainer: logistic, initial: "+e.initial(t,
		f)+"}, "+
		"batch_size: 8, step_size: {constant: 0.5, normalize: false}, steps: {budget: 1h, min: 1, max: 1}}", keys,
		"{participants: 1, quorum: 1, deadline: 60s, gather: {minimum: 1, within: 1s, spread: 100ms, respond: "+
			"{target: 1, return_after: 200ms, return_within: 500ms, presence: round}}}", "log: {format: json}")
	lead := f.Daemon(t, "coordinator", "coordinator")
	var devices []*testkit.Process
	for _, id := range ids {
		cmd := exec.Command(x.python, "-B", filepath.Join("..", "..", "packaging", "python", "examples", "device.py"),
			f.Broker, f.Name, id, f.Path(id+".key"), f.CoordinatorKey, f.Path(id+".csv"), "y")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+e.path)
		devices = append(devices, testkit.Start(t, cmd))
	}
	for i, d := range devices {
		testkit.Until(t, ids[i]+" has left, come back and taken part", func() bool {
			_, since, left := strings.Cut(d.Log(), " s: this agent is not a participant of the round")
			return left && strings.Contains(since, ": accepted")
		})
	}
	lead.Stop(t, syscall.SIGTERM, 0)
	testkit.StopAll(t, devices...)
	if kept := brokers.Retained(t, strings.TrimPrefix(f.Broker, "tcp://"), f.Name, "p/+"); len(kept) > 0 {
		t.Errorf("the broker keeps %v", kept)
	}
	log := lead.Log()
	if strings.Contains(log, `"msg":"agent declined the round"`) || strings.Contains(log, "abandoned") {
		t.Error(log)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"msg":"message dropped"`) && !strings.Contains(line, `"reason":"replayed"`) {
			t.Error(line)
		}
	}
}

// TestDevice trains with one device that runs examples/device.py. The other devices run agentd with the trainer
// examples/logistic.py.
func TestDevice(t *testing.T) {
	t.Parallel()
	x := findTools(t)
	f := testkit.NewFederation(t, x.programs, "device", brokers.OpenMosquitto(t))
	e := newExample(t, x.python, "logistic:Logistic", "rows.csv", "y")
	f.Write(t, "rows.csv", classes(1))
	keys := f.AddAgent(t, "a", "unused\n0\n") + f.AddAgent(t, "b", classes(2))
	configure(t, f, "a", e.trainers("logistic", f.Dir))
	f.ConfigureCoordinator(t, "{name: device, model: {kind: external, trainer: logistic, initial: "+e.initial(t,
		f)+"}, "+
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
	if log := lead.Log(); strings.Contains(log, `"msg":"agent declined the round"`) || strings.Contains(log,
		"abandoned") {
		t.Error(log)
	}
}
