package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/keys"
)

// TestACL checks that the access rules name the coordinator, all agents in the list, and no other user.
func TestACL(t *testing.T) {
	dir := t.TempDir()
	public := map[string]string{}
	for _, name := range []string{"coordinator.key", "s1.key", "s2.key"} {
		key, err := keys.CreateSigningKeyFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		public[name] = keys.FormatPublic(keys.Public(key))
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	agents := write("agents.keys", fmt.Sprintf("s1 %s\ns2 %s\n", public["s1.key"], public["s2.key"]))
	file := write("coordinator.yaml", fmt.Sprintf(`
federation: air
state_dir: %s
identity: {key_file: %s, agents_file: %s}
task: {name: t, features: [a], target: b}
round: {participants: 2, quorum: 1, gather: {minimum: 2}}
`, dir, filepath.Join(dir, "coordinator.key"), agents))
	var out, errs bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	root.SetErr(&errs)
	if code := cli.Main(root, []string{"acl", "--config", file}); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var users []string
	for line := range strings.Lines(out.String()) {
		if user, ok := strings.CutPrefix(line, "user "); ok {
			users = append(users, strings.TrimSpace(user))
		}
	}
	if got := strings.Join(users, " "); got != "air-coordinator air-s1 air-s2" {
		t.Errorf("users %q in\n%s", got, out.String())
	}
}
