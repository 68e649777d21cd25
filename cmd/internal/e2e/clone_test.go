package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestClone runs a device and a copy of its disk, but for the data.
func TestClone(t *testing.T) {
	t.Parallel()
	f := newFederation(t, mosquitto(t))
	f.lead(t, f.agent(t, "one", plane(60)), `{participants: 1, quorum: 1, gather: {minimum: 1}}`)
	lead := f.run(t, "coordinator", "coordinator")
	first := f.run(t, "agentd", "one")
	lead.await(t, "agent is there agent=one")
	copyFiles(t, f.path("copied"), f.path("state-one"))
	second := f.run(t, "agentd", "one", "--set", "state_dir="+f.path("copied"))
	if line := second.await(t, "another device has the identity of this agent"); !strings.Contains(line, " here) and 1 (") {
		t.Errorf("the clone says %s", line)
	}
	if line := lead.await(t, "two devices speak as one agent"); !strings.Contains(line, "agent=one") {
		t.Errorf("the coordinator says %s", line)
	}
	for _, p := range []*process{first, second, lead} {
		p.stop(t, syscall.SIGTERM, 0)
	}
}

// copyFiles copies the files of a folder that has no others below, but no
// sockets. The process that owns it writes on: what is gone meanwhile was a
// temporary file.
func copyFiles(t *testing.T, to, from string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	for _, e := range entries {
		if err == nil && e.Type().IsRegular() {
			var data []byte
			if data, err = os.ReadFile(filepath.Join(from, e.Name())); errors.Is(err, fs.ErrNotExist) {
				err = nil
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o600)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
