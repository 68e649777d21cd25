package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestClone checks that a device and a clone of it, which runs on a copy of its disk with different data, are detected.
func TestClone(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(60)), `{participants: 1, quorum: 1, gather: {minimum: 1}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	first := f.Daemon(t, "agentd", "one")
	lead.Await(t, "agent available agent=one")
	copyFiles(t, f.Path("copied"), f.Path("state-one"))
	second := f.Daemon(t, "agentd", "one", "--set", "state_dir="+f.Path("copied"))
	if line := second.Await(t, "another device uses the identity of this agent"); !strings.Contains(line,
		`other_start="1 (`) {
		t.Errorf("the clone says %s", line)
	}
	if line := lead.Await(t, "two devices use the identity of the same agent"); !strings.Contains(line, "agent=one") {
		t.Errorf("the coordinator says %s", line)
	}
	for _, p := range []*testkit.Process{first, second, lead} {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}

// copyFiles copies the files of a folder, without subfolders and sockets. The process that owns the folder is still
// running, so temporary files may disappear during the copy.
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
