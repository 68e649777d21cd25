//go:build nightly

package e2e

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestUpgrade upgrades a federation from the last release and then downgrades it. It kills the programs at each change,
// as a power cut would. TestUpgrade tests both orders: coordinator first, and agents first.
func TestUpgrade(t *testing.T) {
	release := testkit.LastRelease(root)
	old := testkit.BuildEarlier(t, root, release)
	t.Logf("the last release is %s", release)
	half, rest := fleetIDs[:2], fleetIDs[2:]

	t.Run("coordinator first", func(t *testing.T) {
		f := newFleet(t)
		f.run(t, old, append(fleetIDs, "")...)
		f.versions(t, 4)
		f.step(t, programs, "")      // new coordinator, old agents
		f.step(t, programs, half...) // new coordinator, some new agents
		f.mixed(t, 2)
		f.step(t, programs, rest...) // all agents new
		f.mixed(t, 0)
		f.step(t, old, half...) // some agents downgraded
		f.step(t, old, "")      // coordinator downgraded
		f.step(t, programs, "") // everything upgraded again
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

// step replaces programs by programs of another version that use the same folders, and checks that the run continues.
func (f *fleet) step(t *testing.T, of testkit.Programs, ids ...string) {
	t.Helper()
	f.kill(ids...)
	f.run(t, of, ids...)
	f.versions(t, 4)
	f.unharmed(t)
}

// mixed checks that the list of devices shows the correct program version of each device.
func (f *fleet) mixed(t *testing.T, old int) {
	t.Helper()
	text := programs.MustRun(t, "coordinator", "devices", "list", "--config", f.Path("coordinator.yaml"))
	present := strings.TrimPrefix(strings.TrimSpace(programs.MustRun(t, "agentd", "--version")), "agentd version ")
	if n := strings.Count(text, present); n != len(fleetIDs)-old {
		t.Errorf("%d agents of %s, want %d:\n%s", n, present, len(fleetIDs)-old, text)
	}
}
