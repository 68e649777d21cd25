package mosquitto_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// TestRulesAreCopied runs the command from fedmesh-acl.service. The command must replace Mosquitto's acl file
// atomically. It must not copy a file that the coordinator cannot read.
func TestRulesAreCopied(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("the unit runs as root, and starts processes")
	}
	var script string
	for line := range strings.Lines(string(mosquitto.RulesService)) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=/bin/sh -ec '"); is && script == "" {
			script = strings.TrimSuffix(rest, "'")
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(dir); up != "/" && up != os.TempDir(); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "acl")
	script = strings.NewReplacer("/var/lib/coordinator/acl", from, "/etc/mosquitto/acl", to, "=coordinator", "=65534",
		"chgrp mosquitto", "chgrp 65534").Replace(script)
	copied := func() (string, error) {
		out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput()
		text, _ := os.ReadFile(to)
		if err != nil {
			t.Logf("%s", out)
		}
		return string(text), err
	}
	if err := os.WriteFile(from, []byte("user a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := copied(); text != "user a\n" || err != nil {
		t.Errorf("copied is %q, %v", text, err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(from); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, from); err != nil {
		t.Fatal(err)
	}
	if text, err := copied(); text != "user a\n" || err == nil {
		t.Errorf("of a link to what only root reads: copied is %q, %v", text, err)
	}
}
