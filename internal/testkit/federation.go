package testkit

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// Federation is the files of a federation in a folder of the test's: a key and a configuration for the coordinator and
// each agent.
type Federation struct {
	Programs
	*launch.Folder
	Broker string // its URL
}

// NewFederation makes the folder and the coordinator's key.
func NewFederation(t testing.TB, programs Programs, name, broker string) *Federation {
	t.Helper()
	folder, err := launch.NewFolder(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &Federation{programs, folder, broker}
}

// Write writes a file of the federation and returns its path.
func (f *Federation) Write(t testing.TB, name, text string) string {
	t.Helper()
	if err := f.Put(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return f.Path(name)
}

// AddAgent makes an agent's key, configuration and data, and returns its line in the list of keys.
func (f *Federation) AddAgent(t testing.TB, id, csv string) string {
	t.Helper()
	line, err := f.NewAgent(id)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, id+".csv", csv)
	f.Configure(t, id)
	return line
}

// AddAgents is AddAgent for several agents with the same data.
func (f *Federation) AddAgents(t testing.TB, csv string, ids ...string) (lines string) {
	t.Helper()
	for _, id := range ids {
		lines += f.AddAgent(t, id, csv)
	}
	return lines
}

// Configure writes an agent's configuration.
func (f *Federation) Configure(t testing.TB, id string) {
	t.Helper()
	f.Write(t, id+".yaml", f.AgentYAML(id, "{url: "+f.Broker+"}",
		"data: {csv: "+f.Path(id+".csv")+"}\nmetrics: {listen: \"\"}"))
}

// ConfigureCoordinator writes the coordinator's configuration for a task and a round, both in YAML, and the list of
// keys. more is further sections.
func (f *Federation) ConfigureCoordinator(t testing.TB, task, agents, round string, more ...string) {
	t.Helper()
	f.Write(t, "agents.keys", agents)
	f.Write(t, "coordinator.yaml", f.CoordinatorText(launch.Coordinator, task, round, more...))
}

// CoordinatorText returns the configuration of one of several coordinators.
func (f *Federation) CoordinatorText(name, task, round string, more ...string) string {
	return f.CoordinatorYAML(name, "{url: "+f.Broker+"}",
		"task: "+task+"\nround: "+round+"\nmetrics: {listen: \"\"}\n"+strings.Join(more, "\n"))
}

// Daemon starts a daemon with its configuration file.
func (f *Federation) Daemon(t testing.TB, program, name string, more ...string) *Process {
	t.Helper()
	return f.Start(t, program, append([]string{"run", "--config", f.Path(name + ".yaml")}, more...)...)
}

// Agents starts several agents with the same further arguments.
func (f *Federation) Agents(t testing.TB, ids []string, more ...string) (all []*Process) {
	t.Helper()
	for _, id := range ids {
		all = append(all, f.Daemon(t, "agentd", id, more...))
	}
	return all
}
