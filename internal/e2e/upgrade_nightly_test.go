//go:build nightly

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite testdata/earlier")

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

// mixed wants the list of devices to say that some are of an earlier version than others.
func (f *fleet) mixed(t *testing.T, old int) {
	t.Helper()
	text := programs.MustRun(t, "coordinator", "devices", "list", "--config", f.Path("coordinator.yaml"))
	present := strings.TrimPrefix(strings.TrimSpace(programs.MustRun(t, "agentd", "--version")), "agentd version ")
	if n := strings.Count(text, present); n != len(fleetIDs)-old {
		t.Errorf("%d agents of %s, want %d:\n%s", n, present, len(fleetIDs)-old, text)
	}
}

// TestOtherProtocol has programs of version 1 of the protocol meet the present ones: each says which one to update.
func TestOtherProtocol(t *testing.T) {
	old := testkit.BuildEarlier(t, root, testkit.Protocol1)
	f := newFleet(t)
	f.run(t, old, append(fleetIDs, "")...)
	f.lead.Await(t, "round closed round=4")
	f.save(t, "protocol1.tar.gz")

	f.run(t, old, "", "one", "two", "three")
	f.run(t, programs, "four")
	testkit.Until(t, "the new agent says why it takes no part", func() bool {
		_, said, _ := programs.Run(t, "agentd", "status", "--config", f.Path("four.yaml"))
		return strings.Contains(strings.Join(strings.Fields(said), " "), "the coordinator's announcements cannot be "+
			"read: unknown protocol version 1: this build speaks 2: update the coordinator")
	})
	f.lead.Stop(t, syscall.SIGTERM, 0)
	f.kill("one")
	f.run(t, programs, "one")
	f.lead = f.Daemon(t, "coordinator", "coordinator", "--new-run", "--set", "round.participants=2", "--set",
		"round.quorum=2", "--set", "round.gather.minimum=2", "--set", "round.gather.target=2")
	f.lead.Await(t, "round closed round=3") // of the two new agents
	said := programs.MustRun(t, "coordinator", "devices", "list", "--config", f.Path("coordinator.yaml"))
	if strings.Count(said, "speaks protocol version 1, not 2") != 2 {
		t.Errorf("want two agents that speak version 1:\n%s", said)
	}
}

// TestStateOfRelease makes the states that TestStateOfProtocol2 goes on with; -update keeps them.
func TestStateOfRelease(t *testing.T) {
	f := newFleet(t)
	f.run(t, testkit.BuildEarlier(t, root, testkit.Protocol2), append(fleetIDs, "")...)
	f.versions(t, 4)
	f.save(t, "protocol2.tar.gz")
}

// save cuts the power of all, and with -update packs what they leave.
func (f *fleet) save(t *testing.T, archive string) {
	t.Helper()
	f.kill(append(fleetIDs, "")...)
	if !*update {
		return
	}
	path, err := filepath.Abs(earlierStates + archive)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-c", `tar -C "$1" --exclude='*.yaml' --exclude='*.csv' --exclude=lock `+
		`--exclude='*.sock' --owner=0 --group=0 -czf "$2" .`, "bash", f.Dir, path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
