//go:build linux || darwin

package coordinator_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// limitFileSize limits the size of files that this process can write, like a disk with little space.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Error(err)
		}
	}
	set(syscall.Rlimit{Cur: size, Max: old.Max})
	t.Cleanup(func() { set(old) })
	return func() { set(old) }
}

// alone is an environment variable that marks a process for a single test.
const alone = "FEDMESH_TEST_ALONE"

// TestUpdatesWaitForRoom checks that updates that do not fit on the disk wait for space, beyond the round's deadline if
// necessary, and are then stored.
func TestUpdatesWaitForRoom(t *testing.T) {
	if os.Getenv(alone) == "" { // The limit applies to the whole process, and go test writes a file as well.
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.RoundTimeout = false, 1, time.Minute
		f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = []uint32{256, 256}, 0.001 // a model of 268 kB
		begun := make(chan func(), 1)
		f.agents[0].moment = func(m any) {
			if _, ok := m.(agentround.WorkStarted); ok {
				f.agents[0].moment = nil
				begun <- limitFileSize(t, 100_000)
			}
		}
		f.start()
		lift := <-begun
		wait(5 * time.Minute)
		if n := len(events[round.UpdateAccepted](f)); n > 0 {
			t.Errorf("%d updates were accepted by a full disk", n)
		}
		f.wantStorage(wire.CoordinatorID, 1, 0)
		f.wantStorage("a0", 1, 0) // the agent's own copy failed; it sends the update anyway
		lift()
		f.finished(time.Hour)
		f.checkOnce("no room for updates")
		wait(time.Second)
		f.wantStorage(wire.CoordinatorID, 1, 1)
		f.wantStorage("a0", 1, 1)
		if closed := events[round.RoundClosed](f); len(closed) != 1 || closed[0].AcceptedUpdates != 3 {
			t.Errorf("%+v", closed)
		}
	})
}

// wantStorage checks how often a process reported that its state folder began to fail and recovered.
func (f *federation) wantStorage(id wire.AgentID, failing, mended int) {
	f.t.Helper()
	begun, over := len(events[host.StorageFailing](f, id)), len(events[host.StorageRecovered](f, id))
	if begun != failing || over != mended {
		f.t.Errorf("%s told %d times that its state folder fails and %d times that it is well again, want %d and %d",
			id, begun, over, failing, mended)
	}
}

// TestRoundOutlivesABlockedJournal checks that the deadline of a round is postponed by the time for which the journal
// could not be written.
func TestRoundOutlivesABlockedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.RoundTimeout = false, 1, time.Minute
		full := make(chan func(), 1)
		f.coord.moment = func(m any) {
			if p, ok := m.(round.PhaseEntered); ok && p.Phase == round.CoordinatorCollecting {
				full <- obstructSlots(t, f.coord.path("run"))
				f.coord.moment = nil
			}
		}
		f.start()
		undo := <-full
		wait(12 * time.Minute)
		f.wantStorage(wire.CoordinatorID, 1, 0)
		undo()
		f.finished(time.Hour)
		f.checkOnce("blocked journal")
		f.wantStorage(wire.CoordinatorID, 1, 1)
	})
}

// TestAgentThatCannotObeyDeclines checks that an agent that cannot store the position of the announcement on its disk
// declines, and is not drawn until its disk works. No round waits for this agent.
func TestAgentThatCannotObeyDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		r := &f.cfg.Round
		r.MaxAggregations, r.Quorum, r.Gather.MinAgents, r.Gather.TargetAgents = 12, 2, 2, 0
		a1 := f.agents[1]
		full := make(chan func(), 1)
		a1.moment = func(m any) {
			if e, ok := m.(agentround.WorkEnded); ok && e.Round == 2 {
				full <- obstructSlots(t, a1.path("obeyed"))
				a1.moment = nil
			}
		}
		f.start()
		undo := <-full
		f.until(time.Hour, "at round 6", func() bool { return len(events[round.RoundClosed](f)) >= 6 })
		f.wantStorage("a1", 1, 0)
		began := len(events[agentround.WorkStarted](f, "a1"))
		undo()
		f.finished(2 * time.Hour)
		f.wantStorage("a1", 1, 1)
		f.checkOnce("cannot obey")
		for _, c := range events[round.RoundClosed](f) {
			if c.ClosedByDeadline || c.RoundDuration > time.Minute {
				t.Errorf("round %d took %v", c.Round, c.RoundDuration)
			}
		}
		declined := events[round.AgentDeclined](f)
		if len(declined) != 1 || declined[0].Agent != "a1" || declined[0].Reason != wire.DeclineStorageFailing {
			t.Errorf("declined: %+v", declined)
		}
		// The disk may fail after the agent has started.
		if now := len(events[agentround.WorkStarted](f, "a1")); began < 2 || began > 3 || now < 6 {
			t.Errorf("a1 began to work in %d rounds before and %d after its disk was mended", began, now)
		}
	})
}
