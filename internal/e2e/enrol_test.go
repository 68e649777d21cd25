package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestEnrolCommands tests ways of enrolment other than a token per device, on Mosquitto: a token for any device until
// the token is removed, a folder with all necessary files, and a known public key.
func TestEnrolCommands(t *testing.T) {
	t.Parallel()
	j := newJoining(t, 2)
	open := func(n, id string) (code int, said string) {
		said = j.command("enrol", "--open")
		is := printed.FindStringSubmatch(said)
		if is == nil || !strings.Contains(said, "any device with this token") {
			t.Fatalf("enrol --open says %s", said)
		}
		if n == "closed" {
			j.command("enrol", "--close")
		}
		code, stdout, stderr := programs.Run(t, "agentd", "join", is[1], "--token", is[2], "--id", id, "--config",
			filepath.Join(j.device(0), n, "agentd.yaml"), "--no-start")
		return code, stdout + stderr
	}
	if code, said := open("open", "press-0"); code != 0 {
		t.Errorf("an open token: exit status %d, %s", code, said)
	}
	if code, said := open("closed", "press-9"); code != 1 || !strings.Contains(said, "unknown token") {
		t.Errorf("when it is removed: exit status %d, %s", code, said)
	}
	known := strings.TrimSpace(programs.MustRun(t, "agentd", "key", "new", filepath.Join(t.TempDir(), "agent.key")))
	j.command("enrol", "--preauthorize", "press-2", known)

	kit, dir := filepath.Join(t.TempDir(), "press-1.tar"), j.device(1)
	if said := j.command("enrol", "--device", "press-1", "--kit", kit); !strings.Contains(said, "WARNING: ") {
		t.Errorf("enrol --kit says %s", said)
	}
	if out, err := exec.Command("tar", "-C", dir, "-xf", kit).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	j.reload()
	run := []string{"run", "--config", filepath.Join(dir, "agentd.yaml"), "--set", "state_dir=" + dir + "/state",
		"--set", "data.csv=" + dir + "/rows.csv", "--set", "metrics.listen="}
	for key, name := range map[string]string{"identity.key_file": "agent.key", "identity.root_file": "root",
		"broker.key_file": "client.key", "broker.cert_file": "client.crt", "broker.ca_file": "ca.crt"} {
		run = append(run, "--set", key+"="+filepath.Join(dir, name))
	}
	device := testkit.Start(t, exec.Command(filepath.Join(string(programs), "agentd"), run...))
	device.Await(t, "local data fit the task")
	j.lead.Await(t, "agent available agent=press-1")
	list := j.command("devices", "list")
	for _, id := range []string{"press-0", "press-1", "press-2"} {
		if !strings.Contains(list, id) {
			t.Errorf("the list lacks %s: %s", id, list)
		}
	}
}
