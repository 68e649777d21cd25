package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// write writes a file into a new folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStatusNeedsNoKeys checks that the command status works for users who cannot read the daemon's keys, and also with
// an invalid configuration.
func TestStatusNeedsNoKeys(t *testing.T) {
	file := write(t, "coordinator.yaml", "state_dir: /none\nidentity: {key_file: /none/key}\nround: {quorum: 0}\n")
	if code, _, stderr := clitest.Run(rootCommand(), "status", "--config", file); code != 1 ||
		!strings.Contains(stderr, "no running coordinator uses the state folder /none") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
	file = write(t, "coordinator.yaml", "state_dri: /none\n")
	if code, _, stderr := clitest.Run(rootCommand(), "status", "--config", file); code != 78 ||
		!strings.Contains(stderr, `did you mean "state_dir"?`) {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}

// TestBadGraphFile checks that an invalid graph file is reported as a configuration error, so that a service manager
// does not restart the program in vain.
func TestBadGraphFile(t *testing.T) {
	dir := t.TempDir()
	key, graph := filepath.Join(dir, "key"), write(t, "edges.csv", "from,to\na,b\nb\n")
	list := ""
	for id, file := range map[string]string{"a": key, "b": filepath.Join(dir, "other")} {
		code, public, stderr := clitest.Run(rootCommand(), "key", "new", file)
		if code != 0 {
			t.Fatal(stderr)
		}
		list += id + " " + public
	}
	agents := write(t, "agents.keys", list)
	file := write(t, "coordinator.yaml", `
federation: air
state_dir: `+dir+`
identity: {key_file: `+key+`, agents_file: `+agents+`}
task: {name: t, features: [a], target: b, step_size: {normalize: false}}
round: {algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 1, gather: {minimum: 2}}
mesh: {edges: file, file: `+graph+`}
`)
	for _, command := range []string{"config check", "run"} {
		if code, _, stderr := clitest.Run(rootCommand(),
			append(strings.Fields(command), "--config", file)...); code != 78 ||
			!strings.Contains(stderr, "mesh: "+graph+":3") {
			t.Errorf("%s: exit status %d, %s", command, code, stderr)
		}
	}
}
