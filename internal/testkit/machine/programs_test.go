//go:build linux && (machine || vm)

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

var programs testkit.Programs

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, filepath.Join("..", "..", ".."), &programs)) }

// site is a machine with Mosquitto and a federation of one agent. The keys, configurations and data are in the folders
// that our packages use.
type site struct{ *Machine }

const (
	agentConfig = `federation: air
id: station-1
broker: {url: "tcp://127.0.0.1:1883"}
identity:
  coordinator_key: %q
data:
  csv: /srv/data.csv
log:
  level: info
`
	coordinatorConfig = `federation: air
broker: {url: "tcp://127.0.0.1:1883"}
task:
  name: line
  features: [x]
  target: y
  step_size: {constant: 0.01}
  standardize: false
  steps: {budget: 1s, max: 5}
  min_rows: 1
round:
  participants: 1
  quorum: 1
  rounds: 3
  deadline: 30s
  gather: {minimum: 1, target: 1, within: 2s, spread: 100ms}
log:
  level: info
`
)

// newSite boots a machine and prepares everything except the services. Only root can read the keys. systemd passes them
// to the services as credentials.
func newSite(t *testing.T) *site {
	t.Helper()
	m := &site{Boot(t, string(programs))}
	m.Shell("install -m 755 -t /usr/local/bin " + DropDir + "/agentd " + DropDir + "/coordinator")
	m.furnish()
	return m
}

// furnish writes the keys, configurations and data of a federation.
func (m *site) furnish() {
	m.t.Helper()
	m.Must("mkdir", "--parents", "/etc/agentd", "/etc/coordinator")
	agentKey := m.Must(DropDir+"/agentd", "key", "new", "/etc/agentd/agent.key")
	coordinatorKey := m.Must(DropDir+"/coordinator", "key", "new", "/etc/coordinator/coordinator.key")
	m.Write("/etc/coordinator/agents.keys", 0o644, "station-1 "+agentKey+"\n")
	m.configure("agentd", fmt.Sprintf(agentConfig, coordinatorKey))
	m.configure("coordinator", coordinatorConfig)
	var rows strings.Builder
	rows.WriteString("x,y\n")
	for i := range 100 {
		fmt.Fprintf(&rows, "%d,%d\n", i%7, 3*(i%7)+i%2)
	}
	m.Write("/srv/data.csv", 0o644, rows.String())
}

func (m *site) configure(program, text string) {
	m.t.Helper()
	m.Write("/etc/"+program+"/"+program+".yaml", 0o644, text)
}

// addUser creates the system user that runs the program.
func (m *site) addUser(program string) {
	m.t.Helper()
	m.Must("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/var/lib/"+program, "--shell",
		"/usr/sbin/nologin", program)
}

// dropIn writes a systemd drop-in file that overrides lines of a program's unit.
func (m *site) dropIn(program, lines string) {
	m.t.Helper()
	m.Write("/etc/systemd/system/"+program+".service.d/test.conf", 0o644, lines)
	m.Must("systemctl", "daemon-reload")
}

// property returns a systemd property of a program's service.
func (m *site) property(program, name string) string {
	m.t.Helper()
	return m.Must("systemctl", "show", "--value", "--property="+name, program+".service")
}

// journal returns the lines that the program has written to systemd's journal.
func (m *site) journal(program string) string {
	m.t.Helper()
	return m.Must("journalctl", "--no-pager", "--output=cat", "_SYSTEMD_UNIT="+program+".service")
}

// metrics returns the metrics page of the program that listens on the given port.
func (m *site) metrics(port int) string {
	m.t.Helper()
	return m.Must("bash", "-ec",
		fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`, port))
}

// wantFailure runs a command that must fail with the given exit code. The output must contain the text says.
func (m *site) wantFailure(code int, says string, command ...string) {
	m.t.Helper()
	got, output := m.Run(command...)
	if got != code || !strings.Contains(output, says) {
		m.t.Errorf("%v: exit %d, want %d, and %q in\n%s", command, got, code, says, output)
	}
}
