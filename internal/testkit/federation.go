package testkit

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// Federation holds the files of a test federation in a temporary folder: the keys and configurations of the coordinator
// and of all agents.
type Federation struct {
	Programs
	*launch.Folder
	Broker string // URL of the MQTT broker
}

// NewFederation creates a temporary folder for a test federation, with the coordinator's private key.
func NewFederation(t testing.TB, programs Programs, name, broker string) *Federation {
	t.Helper()
	folder, err := launch.NewFolder(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &Federation{programs, folder, broker}
}

// Write writes a file into the federation's folder and returns the path of the file.
func (f *Federation) Write(t testing.TB, name, text string) string {
	t.Helper()
	if err := f.Put(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return f.Path(name)
}

// AddAgent creates the key, the configuration and the CSV data of an agent. It returns the agent's line for the
// coordinator's list of agents.
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

// AddAgents calls AddAgent for each id with the same CSV data. It returns the lines of all agents for the coordinator's
// list of agents.
func (f *Federation) AddAgents(t testing.TB, csv string, ids ...string) (lines string) {
	t.Helper()
	for _, id := range ids {
		lines += f.AddAgent(t, id, csv)
	}
	return lines
}

// Configure writes the configuration file of an agent.
func (f *Federation) Configure(t testing.TB, id string) {
	t.Helper()
	f.Write(t, id+".yaml", f.AgentYAML(id, "{url: "+f.Broker+"}",
		"data: {csv: "+f.Path(id+".csv")+"}\nmetrics: {listen: \"\"}"))
}

// ConfigureCoordinator writes the coordinator's configuration file and list of agents. task and round are YAML
// sections; more contains further sections.
func (f *Federation) ConfigureCoordinator(t testing.TB, task, agents, round string, more ...string) {
	t.Helper()
	f.Write(t, "agents.keys", agents)
	f.Write(t, "coordinator.yaml", f.CoordinatorText(launch.Coordinator, task, round, more...))
}

// CoordinatorText returns the YAML configuration of a coordinator. name identifies the coordinator if several
// coordinators share the federation.
func (f *Federation) CoordinatorText(name, task, round string, more ...string) string {
	console := "console: {listen: \"\"}\n"
	if slices.ContainsFunc(more, func(s string) bool { return strings.HasPrefix(s, "console:") }) {
		console = ""
	}
	return f.CoordinatorYAML(name, "{url: "+f.Broker+"}",
		"task: "+task+"\nround: "+round+"\nmetrics: {listen: \"\"}\n"+console+strings.Join(more, "\n"))
}

// Daemon starts agentd or coordinator as a process with the configuration file called name. more contains further
// command-line arguments.
func (f *Federation) Daemon(t testing.TB, program, name string, more ...string) *Process {
	t.Helper()
	return f.Start(t, program, append([]string{"run", "--config", f.Path(name + ".yaml")}, more...)...)
}

// Agents starts one agentd process per id, all with the same additional command-line arguments.
func (f *Federation) Agents(t testing.TB, ids []string, more ...string) (all []*Process) {
	t.Helper()
	for _, id := range ids {
		all = append(all, f.Daemon(t, "agentd", id, more...))
	}
	return all
}
