package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// fleet is a federation whose programs are of several versions.
type fleet struct {
	*federation
	agents map[string]*testkit.Process
	lead   *testkit.Process
}

var fleetIDs = []string{"four", "one", "three", "two"}

// newFleet writes the files of a fleet. Every key whose default has changed since the first version is given.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{federation: newFederation(t, brokers.OpenMosquitto(t)), agents: map[string]*testkit.Process{}}
	var list strings.Builder
	for _, id := range fleetIDs {
		list.WriteString(f.AddAgent(t, id, plane(60)))
	}
	f.configure(t, list.String())
	return f
}

func (f *fleet) configure(t *testing.T, list string) {
	t.Helper()
	f.Lead(t, "{name: plane, features: [a, b], target: y, step_size: {constant: 0.1}, steps: {budget: 100ms, max: 20}}",
		list, "{participants: 4, quorum: 4, deadline: 20s, gather: {target: 4, minimum: 4, within: 20s, spread: 10ms}}")
}

// run starts an agent, or the coordinator for "", of a version.
func (f *fleet) run(t *testing.T, of testkit.Programs, ids ...string) {
	t.Helper()
	with := *f.Federation
	with.Programs = of
	for _, id := range ids {
		if id == "" {
			f.lead = with.Daemon(t, "coordinator", "coordinator")
		} else {
			f.agents[id] = with.Daemon(t, "agentd", id)
		}
	}
}

// kill cuts the power of the coordinator, for "", and of agents.
func (f *fleet) kill(ids ...string) {
	for _, id := range ids {
		if id == "" {
			f.lead.Kill()
		} else {
			f.agents[id].Kill()
		}
	}
}

// versions waits until the run has got some models more, all of one run and made with all agents.
func (f *fleet) versions(t *testing.T, more int) (last uint64) {
	t.Helper()
	before := len(f.rounds(t))
	testkit.Until(t, fmt.Sprintf("%d rounds more", more), func() bool { return len(f.rounds(t)) >= before+more })
	all := f.rounds(t)
	for i, r := range all {
		if r.Run != all[0].Run || r.Accepted != len(fleetIDs) || i > 0 && r.Version != all[i-1].Version+1 {
			t.Fatalf("line %d of the history: %+v, after %+v", i+1, r, all[max(0, i-1)])
		}
	}
	return all[len(all)-1].Version
}

// closed is a round in the history.
type closed struct {
	Run, Version uint64
	Accepted     int
	Outcome      string
}

// rounds are the rounds that were closed.
func (f *fleet) rounds(t *testing.T) (all []closed) {
	t.Helper()
	text, err := os.ReadFile(f.Path("state/history.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r closed
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			continue // it is being written
		}
		if r.Outcome == "closed" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// unharmed wants no error in any log.
func (f *fleet) unharmed(t *testing.T) {
	t.Helper()
	for _, p := range f.agents {
		noErrors(t, p)
	}
	noErrors(t, f.lead)
}

func noErrors(t *testing.T, p *testkit.Process) {
	t.Helper()
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "ERROR") || strings.Contains(line, "reason=version") {
			t.Errorf("%s: %s", p.Name, line)
		}
	}
}

// exported is a model's bytes as a version of the program exports it.
func (f *fleet) exported(t *testing.T, model string) string {
	t.Helper()
	return programs.MustRun(t, "coordinator", "model", "export", model, "--state-dir", f.Path("state"), "--out", "-")
}

const earlierStates = "testdata/earlier/"

// unpack makes the fleet's folder what an earlier version has left when its power was cut in the middle of a run.
func (f *fleet) unpack(t *testing.T, archive string) {
	t.Helper()
	for _, id := range fleetIDs { // in the archive are others
		if err := os.Remove(f.Path(id + ".key")); err != nil {
			t.Fatal(err)
		}
	}
	path, err := filepath.Abs(earlierStates + archive)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-xzf", path, "-C", f.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list, err := os.ReadFile(f.Path("agents.keys"))
	if err != nil {
		t.Fatal(err)
	}
	f.CoordinatorKey = strings.TrimSpace(programs.MustRun(t, "coordinator", "key", "show", f.Path("coordinator.key")))
	for _, id := range fleetIDs {
		f.Configure(t, id)
	}
	f.configure(t, string(list))
}

// TestStateOfProtocol2: the folders of a coordinator and its agents, as the program left them in which version 2 of
// the protocol was frozen, are gone on with by the present ones.
func TestStateOfProtocol2(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.unpack(t, "protocol2.tar.gz")
	before := f.rounds(t)
	model := f.exported(t, "3")
	f.run(t, programs, append(fleetIDs, "")...)
	last := f.versions(t, 3)
	if want := before[len(before)-1].Version + 3; last < want {
		t.Errorf("the run is at version %d, want %d", last, want)
	}
	f.unharmed(t)
	f.lead.Stop(t, syscall.SIGTERM, 0)
	if f.exported(t, "3") != model {
		t.Error("a model of before the upgrade has changed")
	}
}

// TestStateOfProtocol1: the folders of the last program of version 1 are told and kept, and its newest model is where
// a new run begins.
func TestStateOfProtocol1(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.unpack(t, "protocol1.tar.gz")
	model := f.exported(t, "3")
	f.run(t, programs, append(fleetIDs, "")...)
	f.lead.Wait(t, 78)
	for _, want := range []string{"has format version 1, this program reads version 3", "finish the run with that one",
		"coordinator run --from "} {
		if !strings.Contains(f.lead.Log(), want) {
			t.Errorf("the coordinator does not say %q:\n%s", want, f.lead.Log())
		}
	}
	_, from, _ := strings.Cut(f.lead.Log(), "coordinator run --from ")
	from, _, _ = strings.Cut(from, "`")
	earlier := f.exported(t, from)
	f.lead = f.Daemon(t, "coordinator", "coordinator", "--from", from)
	f.lead.Await(t, "a run begins from a model")
	f.lead.Await(t, "round closed")
	f.lead.Stop(t, syscall.SIGTERM, 0)
	run, _, _ := strings.Cut(from, "/")
	if f.exported(t, run+"/3") != model || f.exported(t, from) != earlier {
		t.Error("a model of the earlier run has changed")
	}
	if _, err := os.Stat(f.Path("state/run.aside-1")); err != nil {
		t.Errorf("the earlier run's journal is not kept: %v", err)
	}
}
