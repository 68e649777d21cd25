package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// joining is a federation whose broker uses TLS and whose devices join with tokens.
type joining struct {
	t      *testing.T
	dir    string
	broker *brokers.Mosquitto
	lead   *testkit.Process
	rules  int // number of versions of the access rules that the broker has loaded
}

// newJoining follows the instructions of `coordinator init` until the coordinator runs.
func newJoining(t *testing.T, devices int, set ...string) *joining {
	t.Helper()
	j := &joining{t: t, dir: filepath.Join(t.TempDir(), "plant"), broker: brokers.NewMosquitto(t, mosquitto.Conf)}
	sample := filepath.Join(t.TempDir(), "sample.csv")
	if err := os.WriteFile(sample, j.rows(0), 0o600); err != nil {
		t.Fatal(err)
	}
	said := programs.MustRun(t, "coordinator", "init", "plant_7", "--dir", j.dir, "--broker",
		"mqtts://"+j.broker.Address, "--join", "https://"+brokers.FreeAddress(t), "--from", sample,
		"--agents", fmt.Sprint(devices))
	if !strings.Contains(said, "enrol --config "+j.path("coordinator.yaml")+" --device ID") {
		t.Errorf("init says %s", said)
	}
	for _, name := range []string{"ca.crt", "broker.crt", "broker.key"} {
		content, err := os.ReadFile(j.path("mosquitto", "certs", name))
		if err != nil {
			t.Fatal(err)
		}
		j.broker.Write(t, "certs/"+name, content)
	}
	j.broker.Write(t, "acl", nil)
	j.broker.Start(t)
	run := []string{"run", "--config", j.path("coordinator.yaml")}
	for _, s := range append(set, "round.pause=200ms", "round.rounds=0", "round.stop.patience=0",
		"round.gather.spread=10ms", "metrics.listen=", "console.listen=",
		"enrol.acl="+filepath.Join(j.broker.Dir, "acl")) {
		run = append(run, "--set", s)
	}
	j.lead = programs.Start(t, "coordinator", run...)
	j.reload()
	return j
}

func (j *joining) path(names ...string) string {
	return filepath.Join(append([]string{j.dir}, names...)...)
}

func (j *joining) rows(device int) []byte {
	return deviceRows(rand.New(rand.NewPCG(1, uint64(device))), device, founded[0].target)
}

// reload makes the broker load the next version of its access rules. On a server, the systemd unit fedmesh-acl.path
// does this.
func (j *joining) reload() {
	j.t.Helper()
	const written = "wrote the broker's access rules"
	testkit.Until(j.t, written, func() bool { return strings.Count(j.lead.Log(), written) > j.rules })
	j.rules++
	j.broker.Reload(j.t)
}

// command runs a coordinator command and returns its output.
func (j *joining) command(args ...string) string {
	j.t.Helper()
	return programs.MustRun(j.t, "coordinator", append(args, "--config", j.path("coordinator.yaml"))...)
}

var printed = regexp.MustCompile(`agentd join (\S+) --token (\S+)`)

// enrol returns the URL and the token that `coordinator enrol` prints for a device.
func (j *joining) enrol(args ...string) (url, token string) {
	j.t.Helper()
	said := printed.FindStringSubmatch(j.command(args...))
	if said == nil {
		j.t.Fatalf("%v prints no command", args)
	}
	return said[1], said[2]
}

// device creates the folder of device n, which contains data and in which agentd joins.
func (j *joining) device(n int) string {
	j.t.Helper()
	dir := filepath.Join(j.dir, fmt.Sprint("device-", n))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		j.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rows.csv"), j.rows(n), 0o600); err != nil {
		j.t.Fatal(err)
	}
	return dir
}

func join(t *testing.T, dir, url, token string) (code int, said string) {
	t.Helper()
	code, stdout, stderr := programs.Run(t, "agentd", "join", url, "--token", token, "--config",
		filepath.Join(dir, "agentd.yaml"), "--set", "data.csv="+filepath.Join(dir, "rows.csv"), "--no-start")
	return code, stdout + stderr
}

func run(t *testing.T, dir string) *testkit.Process {
	t.Helper()
	return testkit.Start(t, exec.Command(filepath.Join(string(programs), "agentd"), "run", "--config",
		filepath.Join(dir, "agentd.yaml")))
}

// accepted waits until the given number of further rounds has been aggregated.
func (j *joining) accepted(more int) {
	j.t.Helper()
	rounds := func() int {
		text, err := os.ReadFile(j.path("state", "history.jsonl"))
		if err != nil && !os.IsNotExist(err) {
			j.t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	was := rounds()
	testkit.Until(j.t, "a round is folded", func() bool { return rounds() >= was+more })
}

// TestJoin uses the Mosquitto configuration that we ship. Each device joins with two commands and then trains. All
// devices must install the next root document (list of trusted keys) without a restart. A revoked device must lose
// access to the broker, while the other devices stay connected.
func TestJoin(t *testing.T) {
	t.Parallel()
	j := newJoining(t, 3)
	var devices []*testkit.Process
	for n := range 3 {
		url, token := j.enrol("enrol", "--device", fmt.Sprint("press-", n))
		dir := j.device(n)
		if code, said := join(t, dir, url, token); code != 0 || !strings.Contains(said, "has joined") ||
			!strings.Contains(said, "To start it: agentd run") {
			t.Fatalf("join: exit status %d, %s", code, said)
		}
		if code, said := join(t, dir, url, token); code != 0 || !strings.Contains(said, "has already joined") {
			t.Errorf("the same again: exit status %d, %s", code, said)
		}
		if code, said := join(t, j.device(10+n), url, token); code != 1 ||
			!strings.Contains(said, "already used by another device") {
			t.Errorf("another device with the token: exit status %d, %s", code, said)
		}
	}
	j.reload()
	for n := range 3 {
		devices = append(devices, run(t, j.device(n)))
	}
	j.accepted(2)
	j.checked(0)

	j.nextRoot(devices)
	j.accepted(2)
	for n := range 3 {
		if list := j.command("devices", "list", "--json"); !strings.Contains(list,
			fmt.Sprintf(`"agent":"press-%d"`, n)) || strings.Count(list, `"root":2`) != 3 {
			t.Errorf("the list does not show that all go by the next root document: %s", list)
		}
	}

	j.command("devices", "revoke", "press-2")
	devices[2].Await(t, "coordinator ignores this device's messages")
	devices[2].Await(t, "lost the connection to the broker")
	if told, lost := order(devices[2].Log(), "ignores this device's messages",
		"lost the connection to the broker"); told > lost {
		t.Errorf("its session is ended before it is told: %s", devices[2].Log())
	}
	j.lead.Await(t, "agent left agent=press-2")
	j.accepted(2)
	j.reload()
	j.accepted(2)
	for _, d := range devices[:2] {
		if text := d.Log(); strings.Count(text, "connected") != 1 || strings.Contains(text, "lost") {
			t.Errorf("%s has lost its connection: %s", d.Name, text)
		}
	}
	if list := j.command("devices", "list"); strings.Contains(list, "press-2") || !strings.Contains(list, "press-1") {
		t.Errorf("listed are %s", list)
	}
	j.audited()
}

// checked checks that the device tools obtain the announced task from the running agentd of device n.
func (j *joining) checked(n int) {
	j.t.Helper()
	config := filepath.Join(j.device(n), "agentd.yaml")
	if said := programs.MustRun(j.t, "agentd", "data", "check", "--config", config); !strings.Contains(said,
		"the running agentd") {
		j.t.Errorf("data check: %s", said)
	}
	if said := programs.MustRun(j.t, "agentd", "doctor", "--config", config); !strings.Contains(said,
		"the coordinator announces the task") {
		j.t.Errorf("doctor: %s", said)
	}
}

// order returns the positions of two texts in a log, so that the caller can compare their order.
func order(log, one, other string) (int, int) {
	return strings.Index(log, one), strings.Index(log, other)
}

// nextRoot installs the next root document (list of trusted keys), which contains a new coordinator key. nextRoot waits
// until all devices have installed the document.
func (j *joining) nextRoot(devices []*testkit.Process) {
	j.t.Helper()
	key := strings.TrimSpace(programs.MustRun(j.t, "coordinator", "key", "new", j.path("second.key")))
	programs.MustRun(j.t, "coordinator", "root", "rotate", j.path("root"), "--key", j.path("root.key"),
		"--coordinator-key", key, "--out", j.path("root-2"))
	j.command("root", "install", j.path("root-2"))
	for n, d := range devices {
		d.Await(j.t, fmt.Sprintf("root document installed agent=press-%d version=2", n))
	}
}

// audited checks the entries of the audit log, and that `audit verify` detects a changed entry.
func (j *joining) audited() {
	j.t.Helper()
	if said := j.command("audit", "verify"); !strings.Contains(said, "were not modified") ||
		strings.Contains(said, " match the 0 hashes") {
		j.t.Errorf("audit verify: %s", said)
	}
	files, err := filepath.Glob(j.path("state", "audit", "*.jsonl"))
	if err != nil || len(files) != 1 {
		j.t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		j.t.Fatal(err)
	}
	log := string(text)
	for _, says := range []string{`"event":"started"`, `"event":"command","who":"uid`, "/v1/devices/press-2/revoke",
		`"event":"joined","agent":"press-0"`} {
		if !strings.Contains(log, says) {
			j.t.Errorf("the audit log lacks %s:\n%s", says, log)
		}
	}
	verify := func() (int, string) {
		code, _, said := programs.Run(j.t, "coordinator", "audit", "verify", "--config", j.path("coordinator.yaml"))
		return code, said
	}
	log = strings.Replace(log, "press-2/revoke", "press-1/revoke", 1)
	if err := os.WriteFile(files[0], []byte(log), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if code, said := verify(); code != 1 || !strings.Contains(said, "is damaged or was modified: ") {
		j.t.Errorf("a changed log: exit status %d, %s", code, said)
	}
}
