package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/wire"
)

// built is the build time of the program, and told is the time that the coordinator has signed.
var (
	built = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	told  = time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
)

// at1970 starts the agent on a machine whose clock starts in the year 1970.
func (s *scene) at1970() {
	begun := time.Now()
	s.cfg.Identity.Clock = identity.NewCertificateClock(built,
		func() time.Time { return time.Unix(0, 0).Add(time.Since(begun)) })
	s.start()
}

// wantTime checks the time that the certificate clock returns.
func (s *scene) wantTime(what string, want time.Time) {
	s.t.Helper()
	if got := s.cfg.Identity.Clock.Now(); !got.Equal(want) {
		s.t.Errorf("%s: it is %s, want %s", what, got.UTC(), want)
	}
}

// issued announces round r with the issue time at.
func (s *scene) issued(r wire.RoundID, at time.Time) {
	a := s.training(taskOf("air"), 0, 0)
	a.IssuedAt = uint64(at.Unix())
	s.announce(r, a)
}

// TestClockFloor checks the time for validating certificates on a machine whose clock starts in 1970: first the build
// time, and later the time that the coordinator has signed. The signed time must be saved. Neither a replayed message
// nor a coordinator with a slow clock may set it back.
func TestClockFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.at1970()
		s.wantTime("without any announcement", built)
		wait(time.Minute)
		s.issued(1, told)
		s.wantTime("announced", told)
		wait(2 * time.Minute)
		s.wantTime("two minutes later", told.Add(2*time.Minute))
		s.issued(2, told.Add(time.Minute))
		s.wantTime("a slow coordinator", told.Add(2*time.Minute))
		s.issued(3, told.Add(time.Hour-time.Second))
		s.stop()
		s.at1970()
		s.wantTime("at the next start, less than an hour is lost", told)
		s.issued(4, told.Add(-time.Hour))
		s.wantTime("an older announcement", told)
		s.issued(5, told.Add(time.Hour))
		s.stop()
		s.at1970()
		s.wantTime("at the start after", told.Add(time.Hour))
		events := eventsOf[identity.MachineClockBehind](s)
		if len(events) != 3 || events[2].Machine.Unix() != 0 || !events[2].UsedTime.Equal(told.Add(time.Hour)) {
			t.Errorf("told %v", events)
		}
		s.stop()
		s.cfg.Identity.Clock = identity.NewCertificateClock(built, func() time.Time { return told.Add(48 * time.Hour) })
		s.start()
		s.wantTime("with a machine's clock that is right", told.Add(48*time.Hour))
		if len(eventsOf[identity.MachineClockBehind](s)) != 3 {
			t.Errorf("told %v", eventsOf[identity.MachineClockBehind](s))
		}
	})
}

// TestClockIsSet checks that the agent no longer reports the machine's clock as behind after the clock was set.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		machine := time.Unix(0, 0)
		s.cfg.Identity.Clock = identity.NewCertificateClock(built, func() time.Time { return machine })
		s.start()
		machine = told.Add(-time.Minute)
		s.issued(1, told)
		events := eventsOf[identity.MachineClockBehind](s)
		if len(events) != 2 || events[0].UsedTime != built || !events[1].UsedTime.IsZero() {
			t.Errorf("told %v", events)
		}
	})
}

// TestClockOfThief checks that a new root document makes the agent discard the times that a stolen key has signed, even
// if the process ends immediately afterwards.
func TestClockOfThief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rooted(t)
		s.at1970()
		s.issued(1, time.Unix(1<<40, 0))
		end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		s.wantTime("the thief's", end)
		s.stop()
		s.at1970()
		s.wantTime("it is kept, as any other", end)
		s.send(s.topics.RootDocument(2), rootAfter(s.cfg.Identity.Root, hosts.TestKey("root"),
			hosts.TestKey("second")).Bytes())
		s.wantTime("by the next root", built)
		s.stop()
		s.at1970()
		s.wantTime("at the next start", built)
	})
}
