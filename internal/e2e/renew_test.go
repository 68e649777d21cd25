package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestRenew uses certificates that are valid for one minute. A device must renew its certificate and connect with the
// new certificate. Then the device receives a new key. Rounds must continue, and the next start of the agent must use
// the new key.
func TestRenew(t *testing.T) {
	t.Parallel()
	j := newJoining(t, 1, "enrol.certificate_life=1m")
	url, token := j.enrol("enrol", "--device", "press-0")
	dir := j.device(0)
	if code, said := join(t, dir, url, token); code != 0 {
		t.Fatalf("join: exit status %d, %s", code, said)
	}
	j.reload()
	device := run(t, dir)
	j.accepted(1)

	const renewed = "certificate renewed"
	for n := range 2 {
		testkit.Until(t, "the certificate is renewed", func() bool { return strings.Count(device.Log(), renewed) > n })
	}
	j.broker.Stop(t)
	j.broker.Start(t)
	j.accepted(2)
	if text := device.Log(); strings.Contains(text, "certificate expires soon") ||
		strings.Contains(text, "expired") {
		t.Errorf("a person is warned: %s", text)
	}

	config := filepath.Join(dir, "agentd.yaml")
	said := programs.MustRun(t, "agentd", "key", "rotate", "--config", config)
	if !strings.Contains(said, "the device's key was replaced") {
		t.Errorf("key rotate says %s", said)
	}
	j.lead.Await(t, "device key replaced; the previous key is no longer accepted agent=press-0 repeated=false")
	j.accepted(2)
	device.Stop(t, syscall.SIGTERM, 0)
	device = run(t, dir)
	j.accepted(2)
	if text := device.Log(); strings.Contains(text, "ignores this device's messages") {
		t.Errorf("with the key of the state folder: %s", text)
	}
	status := programs.MustRun(t, "agentd", "status", "--config", config)
	if !strings.Contains(status, "certificate   expires ") {
		t.Errorf("status says %s", status)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "state", "key")); err != nil || len(text) == 0 {
		t.Errorf("the key is not in the state folder: %v", err)
	}
	j.wantAudited(`"event":"renewed","agent":"press-0","about":"new key, certificate valid until`)
}

// wantAudited checks that the audit log contains all given texts.
func (j *joining) wantAudited(all ...string) {
	j.t.Helper()
	files, err := filepath.Glob(j.path("state", "audit", "*.jsonl"))
	if err != nil || len(files) != 1 {
		j.t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		j.t.Fatal(err)
	}
	for _, says := range all {
		if !strings.Contains(string(text), says) {
			j.t.Errorf("the audit log lacks %s:\n%s", says, text)
		}
	}
}
