package agent_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// october is the time at which the tests begin.
var october = time.Date(2026, time.October, 31, 23, 0, 0, 0, time.UTC)

// budgeted makes the scene's agent count to a limit, and returns what sets its
// clock.
func budgeted(s *scene, limit uint64) (set func(time.Time)) {
	var clock atomic.Pointer[time.Time]
	clock.Store(&october)
	s.cfg.Budget = &budget.Budget{MonthlyBytes: limit, Meter: new(mqtt.TrafficMeter)}
	s.cfg.Now = func() time.Time { return *clock.Load() }
	return func(t time.Time) { clock.Store(&t) }
}

// reads returns the topics that the agent is subscribed to.
func (s *scene) reads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.subscribed)
}

// spend moves bytes over the link, and lets the agent look.
func (s *scene) spend(bytes int) {
	s.cfg.Budget.Meter.Count(bytes-bytes/17, 0)
	s.send("nonsense", nil)
}

// counted returns what the agent told last of its budget.
func (s *scene) counted() budget.Used {
	s.t.Helper()
	all := eventsOf[budget.Used](s)
	if len(all) == 0 {
		s.t.Fatal("nothing was told of the budget")
	}
	return all[len(all)-1]
}

// unfit returns what the last hello said.
func (s *scene) unfit() string {
	s.t.Helper()
	all := s.heard(wire.TypeHello)
	if len(all) == 0 {
		return "nothing"
	}
	h, err := wire.DecodeHello(all[len(all)-1].Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if h.UnfitReason == 0 {
		return "fit"
	}
	return h.UnfitReason.String()
}

// A round is joined while the month allows it, and declined then.
func TestBudgetDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		set := budgeted(s, 20_000_000)
		s.start()
		s.invite(1, s.announce(1, s.training(taskOf("one"), 1, 2)))
		wait(10 * time.Second)
		if d := s.declined(); d != "" || s.unfit() != "fit" {
			t.Errorf("declined with %q, and is %s", d, s.unfit())
		}
		if got := s.counted(); got.Limit != 20_000_000 || got.RoundEstimate < 16_000 || got.RoundEstimate > 30_000 {
			t.Errorf("told of %+v", got)
		}
		s.spend(19_990_000)
		gathering := s.training(taskOf("one"), 1, 3)
		gathering.Phase = wire.PhaseGathering
		s.announce(2, gathering)
		wait(10 * time.Second)
		if s.unfit() != "budget" {
			t.Errorf("the hello says %s", s.unfit())
		}
		s.invite(2, s.announce(2, s.training(taskOf("one"), 1, 3)))
		if d := s.declined(); d != "budget" {
			t.Errorf("declined with %q", d)
		}
		if short := eventsOf[round.UplinkBudgetTooSmall](s); len(short) != 1 ||
			short[0].RoundBytes <= short[0].BytesLeft {
			t.Errorf("told of %+v", short)
		}

		// Spent: it stays, and reads what is for it alone.
		listens := func() bool { return slices.Contains(s.reads(), s.topics.Announcement()) }
		if !listens() {
			t.Error("it does not read announcements")
		}
		s.spend(20_000)
		before := len(s.heard(wire.TypeHello))
		wait(24 * time.Hour) // and nobody answers
		if spoke := len(s.heard(wire.TypeHello)) - before; listens() ||
			!slices.Contains(s.reads(), s.topics.CoordinatorToAgent("press")) || spoke > 24 {
			t.Errorf("reads %q, and spoke %d times in a day", s.reads(), spoke)
		}
		s.direct(wire.TypeHelloAnswer, 2,
			(&wire.HelloAnswer{Announcement: wire.Digest{1}, Standing: wire.PlaceNotSelected}).Body())
		if listens() {
			t.Error("it reads announcements again, since somebody named one")
		}
		set(october.AddDate(0, 0, 1))
		wait(time.Hour + time.Minute)
		if got := s.counted(); got.Month != "2026-11" || got.Bytes > 1000 || !listens() {
			t.Errorf("in November: %+v, reads %q", got, s.reads())
		}
	})
}

// A clock that is set back, and then right again, gives no second budget.
func TestBudgetClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		set := budgeted(s, 20_000_000)
		var log bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.start()
		s.spend(5_000_000)
		for _, at := range []time.Time{time.Unix(0, 0), october, october.AddDate(0, -2, 0), october} {
			set(at)
			s.spend(1_000_000)
			if at.Equal(october) {
				continue
			}
			s.stop() // and so in the next life
			s.start()
		}
		if got := s.counted(); got.Month != "2026-10" || got.Bytes < 9_000_000 || got.Bytes > 9_100_000 {
			t.Errorf("told of %+v", got)
		}
		if n := strings.Count(log.String(), "the clock was set back"); n != 3 { // in each life that saw it, not more
			t.Errorf("it says %d times:\n%s", n, log.String())
		}
	})
}

// The count outlives any death: one that is killed has counted too much, by
// one part in a hundred at most, and never too little. The disk is written
// seldom.
func TestBudgetOutlivesDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, piece = 100_000_000, 50_000
		s := newScene(t)
		budgeted(s, limit)
		s.start()
		file := filepath.Join(s.cfg.Dir, "budget")
		writes, last := 0, []byte(nil)
		spent := 0
		for range 200 {
			s.spend(piece)
			spent += piece
			now, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(now, last) {
				writes, last = writes+1, now
			}
			s.countAfterDeath(file, spent, spent+limit/100+1000)
		}
		if writes > 25 {
			t.Errorf("%d writes for a tenth of the month", writes)
		}
		s.stop()
		s.countAfterDeath(file, spent, spent+1000)
		s.start()
		s.spend(0)
		if got := s.counted(); got.Bytes < uint64(spent) || got.Bytes > uint64(spent)+1000 {
			t.Errorf("in the next life: %+v, want %d", got, spent)
		}
	})
}

// countAfterDeath starts an agent on what is on disk now, and looks.
func (s *scene) countAfterDeath(file string, least, most int) {
	s.t.Helper()
	p, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	next := newScene(s.t)
	next.cfg.Boot = 10
	budgeted(next, s.cfg.Budget.MonthlyBytes)
	if err := os.WriteFile(filepath.Join(next.cfg.Dir, "budget"), p, 0o600); err != nil {
		s.t.Fatal(err)
	}
	next.start()
	if got := next.counted().Bytes; got < uint64(least) || got > uint64(most) {
		s.t.Errorf("%d bytes after death, want %d to %d", got, least, most)
	}
	next.stop()
}

// Two agents of a device share its budget: what one spends keeps both away, and the disk has it once, whoever ends
// last.
func TestBudgetShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newScene(t), newScene(t)
		budgeted(one, 20_000_000)
		one.cfg.Budget.Dir = t.TempDir()
		two.cfg.Budget, two.cfg.Now = one.cfg.Budget, one.cfg.Now
		two.run = 6
		for range 2 { // and so in the next life
			one.start()
			two.start()
			one.spend(4_000_000)
			two.spend(4_000_000)
			before, err := os.ReadFile(filepath.Join(one.cfg.Budget.Dir, "budget"))
			two.stop()
			after, again := os.ReadFile(filepath.Join(one.cfg.Budget.Dir, "budget"))
			if err != nil || again != nil || !bytes.Equal(before, after) {
				t.Errorf("while one goes on the number on disk stays ahead: %v, %v", err, again)
			}
			one.spend(1_000_000)
			one.stop()
		}
		one.start()
		two.start()
		one.spend(0)
		two.spend(0)
		for _, s := range []*scene{one, two} {
			if got := s.counted(); got.Bytes < 18_000_000 || got.Bytes > 18_001_000 {
				t.Errorf("told of %+v", got)
			}
			if entries, err := filepath.Glob(filepath.Join(s.cfg.Dir, "budget*")); err != nil || len(entries) > 0 {
				t.Errorf("files %q, %v", entries, err)
			}
		}
		one.spend(2_100_000)
		two.send("nonsense", nil) // it looks
		for _, s := range []*scene{one, two} {
			if slices.Contains(s.reads(), s.topics.Announcement()) {
				t.Error("it reads announcements, and nothing is left")
			}
		}
	})
}
