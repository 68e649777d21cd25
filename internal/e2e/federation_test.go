package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// federation contains the files of a federation in a temporary folder.
type federation struct{ *testkit.Federation }

func newFederation(t *testing.T, broker string) *federation {
	t.Helper()
	return &federation{testkit.NewFederation(t, programs, "e2e", broker)}
}

// lead writes a coordinator configuration for a task whose target is a linear function of the features (see plane).
func (f *federation) lead(t *testing.T, agents, round string) {
	t.Helper()
	f.ConfigureCoordinator(t, "{name: plane, features: [a, b], target: y, steps: {budget: 100ms, max: 20}}", agents,
		round)
}

// plane returns the given number of rows of the function y = 2a − b + 1, as CSV.
func plane(rows int) string {
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range rows {
		x, z := float64(i%7)-3, float64(i%11)-5
		fmt.Fprintf(&b, "%v,%v,%v\n", x, z, 2*x-z+1)
	}
	return b.String()
}

const threeOfThree = `{participants: 3, quorum: 3, rounds: 3, deadline: 20s, gather: {target: 3, minimum: 3, within: 20s, spread: 10ms}}`

// TestFederation runs a whole federation: three rounds with three agents, a fourth agent with bad data, model commands,
// shutdown and restart.
func TestFederation(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	good := []string{"one", "two", "three"}
	list := f.AddAgents(t, plane(60), good...)
	list += f.AddAgent(t, "broken", "a,b,y\n1,2,3\n1,warm,3\n")
	f.lead(t, list, threeOfThree)
	for _, name := range append(good, "broken") {
		if got := programs.MustRun(t, "agentd", "config", "check",
			"--config", f.Path(name+".yaml")); got != f.Path(name+".yaml")+" is valid\n" {
			t.Errorf("config check says %q", got)
		}
	}
	if got := programs.MustRun(t, "coordinator", "config", "check",
		"--config", f.Path("coordinator.yaml")); got != f.Path("coordinator.yaml")+" is valid\n" {
		t.Errorf("config check says %q", got)
	}

	agents := map[string]*testkit.Process{"broken": f.Daemon(t, "agentd", "broken")}
	lead := f.Daemon(t, "coordinator", "coordinator")
	agents["broken"].Await(t,
		`local data do not fit the task agent=broken task=plane err="`+
			f.Path("broken.csv")+`: line 3: column \"b\": \"warm\" is not a number; 1 of 2 rows are unusable`)
	lead.Await(t, "agent cannot perform the task agent=broken reason=bad_data")
	for _, id := range good {
		agents[id] = f.Daemon(t, "agentd", id)
	}
	lead.Await(t, "run finished version=3")
	// The coordinator writes the newest model to the journal first, and adds it to the archive only after the log
	// message.
	testkit.Until(t, "the newest model is in the archive", func() bool {
		return strings.Contains(programs.MustRun(t, "coordinator", "model", "list", "--state-dir", f.Path("state")),
			"  present")
	})
	f.checkModels(t) // run the model commands while the coordinator is running, too
	f.checkLocks(t)
	f.checkStatus(t)
	f.checkData(t)
	testkit.StopAll(t, slices.Collect(maps.Values(agents))...)
	lead.Stop(t, syscall.SIGTERM, 0)
	f.checkModels(t)
	f.checkPresence(t, append(good, "broken"))
	f.checkRestart(t)
}

// checkModels tests the model commands.
func (f *federation) checkModels(t *testing.T) {
	t.Helper()
	state := f.Path("state")
	lines := strings.Split(strings.TrimSpace(programs.MustRun(t, "coordinator", "model", "list", "--state-dir", state)),
		"\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "VERSION  BYTES  HASH") || !strings.HasPrefix(lines[1], "0 ") ||
		!strings.HasPrefix(lines[4], "3 ") || !strings.HasSuffix(lines[4], "  present") {
		t.Errorf("model list:\n%s", strings.Join(lines, "\n"))
	}
	show := programs.MustRun(t, "coordinator", "model", "show", "--state-dir", state)
	for _, want := range []string{"version 3", "task plane", "target y", `features ["a","b"]`, "risk squared",
		"tensor layer0.weight F32 [1 2]"} {
		if !strings.Contains(strings.Join(strings.Fields(show), " "), want) {
			t.Errorf("model show has no %q:\n%s", want, show)
		}
	}
	out := f.Path("exported.safetensors")
	said := programs.MustRun(t, "coordinator", "model", "export", "1", "--state-dir", state, "--out", out)
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if said != fmt.Sprintf("%s: version 1, %d bytes\n", out, len(file)) {
		t.Errorf("model export says %q", said)
	}
	if tensors, meta, err := store.DecodeSafetensors(file); err != nil || len(tensors) == 0 || meta["version"] != "1" {
		t.Errorf("exported %d tensors, metadata %v, error %v", len(tensors), meta, err)
	}
	if piped := programs.MustRun(t, "coordinator", "model", "export", "1", "--state-dir", state, "--out",
		"-"); piped != string(file) {
		t.Error("model export --out - writes something else than the file")
	}
	if code, _, stderr := programs.Run(t, "coordinator", "model", "show", "9", "--state-dir", state); code != 1 ||
		!strings.Contains(stderr, "version 9") {
		t.Errorf("model show 9: exit %d, %s", code, stderr)
	}
	if code, _, stderr := programs.Run(t, "coordinator", "model", "show", "new", "--state-dir", state); code != 2 ||
		!strings.Contains(stderr, `unknown model "new"`) {
		t.Errorf("model show new: exit %d, %s", code, stderr)
	}
	if code, _, stderr := programs.Run(t, "coordinator", "model", "list",
		"--state-dir", f.Path("elsewhere")); code != 1 ||
		!strings.Contains(stderr, f.Path("elsewhere")+": the state folder contains no run") {
		t.Errorf("model list elsewhere: exit %d, %s", code, stderr)
	}
}

// checkLocks checks that a second daemon refuses to use the state folder of a running daemon.
func (f *federation) checkLocks(t *testing.T) {
	t.Helper()
	for program, name := range map[string]string{"agentd": "one", "coordinator": "coordinator"} {
		code, _, stderr := programs.Run(t, program, "run", "--config", f.Path(name+".yaml"))
		if code != 1 || !strings.Contains(stderr, " is locked by process ") ||
			!strings.Contains(stderr, f.Path("state")) {
			t.Errorf("a second %s: exit %d, %s", program, code, stderr)
		}
	}
}

// checkData runs `agentd data check` against the announced task while the agents run.
func (f *federation) checkData(t *testing.T) {
	t.Helper()
	good := programs.MustRun(t, "agentd", "data", "check", "--config", f.Path("one.yaml"))
	code, bad, stderr := programs.Run(t, "agentd", "data", "check", "--config", f.Path("broken.yaml"))
	for got, want := range map[string]string{good: "this device would participate", bad: "would decline the task: " +
		f.Path("broken.csv") + `: line 3: column "b": "warm" is not a number`} {
		if !strings.Contains(got, "task    plane, from the running agentd") || !strings.Contains(got, want) {
			t.Errorf("data check says %s\nwant %q", got, want)
		}
	}
	if code != 1 || stderr != "" {
		t.Errorf("data check of bad data: exit %d, %s", code, stderr)
	}
	f.checkStatus(t) // all agents must still be connected
}

// checkStatus runs the status commands while the daemons run.
func (f *federation) checkStatus(t *testing.T) {
	t.Helper()
	for name, wants := range map[string][]string{
		"coordinator": {"federation e2e", "version 3 of 3", "phase         finished",
			"3 eligible for rounds, 4 enrolled", "broken (bad_data, column \"b\", \"not_a_number\", 1 of 2 values, ",
			"3 of 3"},
		"one": {"agent one of federation e2e", "60 rows usable for the task", "last trained",
			"rounds        accepted"},
		"broken": {"cannot train for the task: bad_data", `"warm" is not a number`},
	} {
		program := "agentd"
		if name == "coordinator" {
			program = name
		}
		text := programs.MustRun(t, program, "status", "--config", f.Path(name+".yaml"))
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("the status of %s has no %q:\n%s", name, want, text)
			}
		}
		var picture struct{ Federation string }
		if err := json.Unmarshal([]byte(programs.MustRun(t, program, "status", "--json",
			"--config", f.Path(name+".yaml"))), &picture); err != nil || picture.Federation != "e2e" {
			t.Errorf("the status of %s as JSON: %+v, error %v", name, picture, err)
		}
	}
}

// checkPresence checks that every agent has published the presence "offline" itself. For a lost connection, the broker
// would have published "lost" instead.
func (f *federation) checkPresence(t *testing.T, ids []string) {
	t.Helper()
	kept := retained(t, f.Broker)
	for _, id := range ids {
		e, err := wire.ParseEnvelope(kept["fl/v1/e2e/p/e2e-"+id])
		if err != nil {
			t.Errorf("presence of %s: %v", id, err)
			continue
		}
		if p, err := wire.DecodePresence(e.Body); err != nil || p.State != wire.PresenceOffline {
			t.Errorf("presence of %s: %v, error %v; want offline", id, p.State, err)
		}
	}
}

// checkRestart restarts the coordinator three times: with the same run, with another task, and with a new run.
func (f *federation) checkRestart(t *testing.T) {
	t.Helper()
	again := f.Daemon(t, "coordinator", "coordinator")
	again.Await(t, "connected to the broker at "+f.Broker)
	again.Await(t, "run finished version=3")
	if text := programs.MustRun(t, "coordinator", "status",
		"--config", f.Path("coordinator.yaml")); !strings.Contains(text, "version 3 of 3") ||
		!strings.Contains(text, "over 3 rounds") {
		t.Errorf("the status after a restart:\n%s", text)
	}
	again.Stop(t, syscall.SIGTERM, 0)
	f.checkModels(t)
	other := f.Daemon(t, "coordinator", "coordinator", "--set", "task.batch_size=16")
	other.Await(t, "task in the configuration file differs from the applied task, which stays in effect")
	other.Await(t, "task.batch_size is 32, but 16 in the configuration file")
	other.Await(t, "run finished version=3")
	other.Stop(t, syscall.SIGTERM, 0)
	warm := f.Daemon(t, "coordinator", "coordinator", "--set", "task.batch_size=16", "--from", "3")
	warm.Await(t, "starting a run from a model")
	warm.Await(t, "connected to the broker at "+f.Broker)
	warm.Stop(t, syscall.SIGTERM, 0)
	warm = f.Daemon(t, "coordinator", "coordinator", "--set", "task.batch_size=16", "--from", "3")
	warm.Await(t, "continuing the run that started from this model")
	warm.Await(t, "connected to the broker at "+f.Broker)
	warm.Stop(t, syscall.SIGTERM, 0)
	if show := programs.MustRun(t, "coordinator", "model", "show",
		"--state-dir", f.Path("state")); !strings.Contains(strings.Join(strings.Fields(show), " "), "version 0 ") {
		t.Errorf("the model of a run that began from another:\n%s", show)
	}
	fresh := f.Daemon(t, "coordinator", "coordinator", "--set", "task.batch_size=16", "--new-run")
	fresh.Await(t, "connected to the broker at "+f.Broker)
	fresh.Stop(t, syscall.SIGTERM, 0)
}
