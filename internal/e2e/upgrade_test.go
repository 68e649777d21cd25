package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// fleet is a federation whose programs may have different versions.
type fleet struct {
	*federation
	agents map[string]*testkit.Process
	lead   *testkit.Process
}

var fleetIDs = []string{"four", "one", "three", "two"}

// newFleet writes the files of a fleet. It sets every key whose default has changed since the first version.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{federation: newFederation(t, brokers.OpenMosquitto(t)), agents: map[string]*testkit.Process{}}
	list := f.AddAgents(t, plane(60), fleetIDs...)
	f.configure(t, list)
	return f
}

func (f *fleet) configure(t *testing.T, list string) {
	t.Helper()
	f.ConfigureCoordinator(t,
		"{name: plane, features: [a, b], target: y, step_size: {constant: 0.1}, steps: {budget: 100ms, max: 20}}",
		list, "{participants: 4, quorum: 4, deadline: 20s, gather: {target: 4, minimum: 4, within: 20s, spread: 10ms}}")
}

// run starts programs of the given version: for each id the agent with this id, or the coordinator if the id is "".
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

// kill kills the agents with the given ids, as a power cut would. The id "" means the coordinator.
func (f *fleet) kill(ids ...string) {
	for _, id := range ids {
		if id == "" {
			f.lead.Kill()
		} else {
			f.agents[id].Kill()
		}
	}
}

// versions waits until the given number of further models exist. It checks that all models belong to one run and that
// all agents contributed.
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

// closed is a closed round in the history.
type closed struct {
	Run, Version uint64
	Accepted     int
	Outcome      string
}

// rounds returns the closed rounds.
func (f *fleet) rounds(t *testing.T) (all []closed) {
	t.Helper()
	text, err := os.ReadFile(f.Path("state/history.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r closed
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			continue // the last line is not complete yet
		}
		if r.Outcome == "closed" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// unharmed checks that no log contains an error.
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
