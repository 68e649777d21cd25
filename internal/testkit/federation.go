package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Federation is the files of a federation in a folder of the test's: a key and a configuration for the coordinator and
// each agent.
type Federation struct {
	Programs
	Name, Dir, Broker string // Broker is its URL
	CoordinatorKey    string // public
}

// NewFederation makes the folder and the coordinator's key.
func NewFederation(t testing.TB, programs Programs, name, broker string) *Federation {
	t.Helper()
	f := &Federation{Programs: programs, Name: name, Dir: t.TempDir(), Broker: broker}
	f.CoordinatorKey = strings.TrimSpace(f.MustRun(t, "coordinator", "key", "new", f.Path("coordinator.key")))
	return f
}

// Path returns the path of a file of the federation.
func (f *Federation) Path(name string) string { return filepath.Join(f.Dir, name) }

// Write writes a file of the federation and returns its path.
func (f *Federation) Write(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.WriteFile(f.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f.Path(name)
}

// AddAgent makes an agent's key, configuration and data, and returns its line in the list of keys.
func (f *Federation) AddAgent(t testing.TB, id, csv string) string {
	t.Helper()
	public := f.MustRun(t, "agentd", "key", "new", f.Path(id+".key"))
	f.Write(t, id+".csv", csv)
	f.Configure(t, id)
	return id + " " + public
}

// Configure writes an agent's configuration.
func (f *Federation) Configure(t testing.TB, id string) {
	t.Helper()
	f.Write(t, id+".yaml", fmt.Sprintf(`
federation: %s
id: %s
state_dir: %s
broker: {url: %s}
identity: {key_file: %s, coordinator_key: %q}
data: {csv: %s}
metrics: {listen: ""}
`, f.Name, id, f.Path("state-"+id), f.Broker, f.Path(id+".key"), f.CoordinatorKey, f.Path(id+".csv")))
}

// ConfigureCoordinator writes the coordinator's configuration for a task and a round, both in YAML, and the list of
// keys. more is further sections.
func (f *Federation) ConfigureCoordinator(t testing.TB, task, agents, round string, more ...string) {
	t.Helper()
	f.Write(t, "agents.keys", agents)
	f.Write(t, "coordinator.yaml", fmt.Sprintf(`
federation: %s
state_dir: %s
broker: {url: %s}
identity: {key_file: %s, agents_file: %s}
task: %s
round: %s
metrics: {listen: ""}
%s
`, f.Name, f.Path("state"), f.Broker, f.Path("coordinator.key"), f.Path("agents.keys"), task, round, strings.Join(more, "\n")))
}

// Daemon starts a daemon with its configuration file.
func (f *Federation) Daemon(t testing.TB, program, name string, more ...string) *Process {
	t.Helper()
	return f.Start(t, program, append([]string{"run", "--config", f.Path(name + ".yaml")}, more...)...)
}
