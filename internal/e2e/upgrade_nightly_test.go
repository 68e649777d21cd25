//go:build nightly

package e2e

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestUpgrade takes a federation of the last release to the present version and back, with the power cut at each
// change, in both orders: the coordinator first, and the agents first.
func TestUpgrade(t *testing.T) {
	release := testkit.LastRelease(root)
	old := testkit.BuildEarlier(t, root, release)
	t.Logf("the last release is %s", release)
	half, rest := fleetIDs[:2], fleetIDs[2:]

	t.Run("coordinator first", func(t *testing.T) {
		f := newFleet(t)
		f.run(t, old, append(fleetIDs, "")...)
		f.versions(t, 4)
		f.step(t, programs, "")      // the new coordinator leads agents of the last release
		f.step(t, programs, half...) // and of both
		f.mixed(t, 2)
		f.step(t, programs, rest...) // all are new
		f.mixed(t, 0)
		f.step(t, old, half...) // some go back
		f.step(t, old, "")      // the coordinator too
		f.step(t, programs, "") // and forward again
	})
	t.Run("agents first", func(t *testing.T) {
		f := newFleet(t)
		f.run(t, old, append(fleetIDs, "")...)
		f.versions(t, 4)
		f.step(t, programs, half...)
		f.step(t, programs, rest...)
		f.step(t, old, rest...)
		f.step(t, programs, "")
		f.mixed(t, 2)
	})
}

// step replaces programs by those of a version, on the same folders, and wants the run to go on.
func (f *fleet) step(t *testing.T, of testkit.Programs, ids ...string) {
	t.Helper()
	f.kill(ids...)
	f.run(t, of, ids...)
	f.versions(t, 4)
	f.unharmed(t)
}

// mixed wants the list of devices to name the version of each.
func (f *fleet) mixed(t *testing.T, old int) {
	t.Helper()
	text := programs.MustRun(t, "coordinator", "devices", "list", "--config", f.Path("coordinator.yaml"))
	present := strings.TrimPrefix(strings.TrimSpace(programs.MustRun(t, "agentd", "--version")), "agentd version ")
	if n := strings.Count(text, present); n != len(fleetIDs)-old {
		t.Errorf("%d agents of %s, want %d:\n%s", n, present, len(fleetIDs)-old, text)
	}
}
