package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestNewDisk checks that a device rejoins at once if its state folder was lost or a file in the folder was damaged.
// This is not obvious, because the coordinator ignores messages that are older than the device's newest start.
func TestNewDisk(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 0, pause: 100ms, gather: {minimum: 1, target: 1}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	damage := func(names ...string) func() {
		return func() {
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(f.Path("state-one"), name), []byte("rubbish"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, step := range []struct {
		before func()
		says   []string
	}{
		{func() {}, nil},
		{func() {}, nil},
		{func() {}, nil},
		{func() {
			if err := os.RemoveAll(f.Path("state-one")); err != nil {
				t.Fatal(err)
			}
		}, []string{"start counter raised"}},
		{damage("boot", "obeyed.a", "obeyed.b"), []string{"file=boot", "file=obeyed",
			"start counter raised"}},
		{damage("update.a"), []string{"file=update"}},
	} {
		step.before()
		one := f.Daemon(t, "agentd", "one")
		for _, text := range step.says {
			one.Await(t, text)
		}
		one.Await(t, "result=accepted")
		one.Kill()
	}
	lead.Stop(t, syscall.SIGTERM, 0)
}
