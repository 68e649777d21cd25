package agent_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// october is the time at which the tests start.
var october = time.Date(2026, time.October, 31, 23, 0, 0, 0, time.UTC)

// budgeted sets a monthly traffic limit for the scene's agent, and returns a function that sets the agent's clock.
func budgeted(s *scene, limit uint64) (set func(time.Time)) {
	var clock atomic.Pointer[time.Time]
	clock.Store(&october)
	s.cfg.Budget = &budget.UplinkBudget{MonthlyBytes: limit, Meter: new(mqtt.TrafficMeter)}
	s.cfg.Now = func() time.Time { return *clock.Load() }
	return func(t time.Time) { clock.Store(&t) }
}

// reads returns the topics to which the agent is subscribed.
func (s *scene) reads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.subscribed)
}

// spend transfers bytes over the uplink and makes the agent update its traffic count.
func (s *scene) spend(bytes int) {
	s.cfg.Budget.Meter.AddTraffic(bytes-bytes/17, 0)
	s.send("nonsense", nil)
}

// counted returns the last event that reports the usage of the monthly budget.
func (s *scene) counted() budget.UplinkUsageChanged {
	s.t.Helper()
	all := eventsOf[budget.UplinkUsageChanged](s)
	if len(all) == 0 {
		s.t.Fatal("nothing was told of the budget")
	}
	return all[len(all)-1]
}

// unfit returns the reason in the last hello message why the agent cannot participate.
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

// TestBudgetDeclines checks that the agent joins rounds while its monthly traffic budget suffices, and declines rounds
// afterwards.
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
		if got := s.counted(); got.LimitBytes != 20_000_000 || got.EstimatedRoundBytes < 16_000 ||
			got.EstimatedRoundBytes > 30_000 {
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
		if short := eventsOf[agentround.UplinkBudgetTooSmall](s); len(short) != 1 ||
			short[0].RoundBytes <= short[0].BytesLeft {
			t.Errorf("told of %+v", short)
		}

		// The budget is spent: the agent must stay connected, but receive only messages that are addressed to it.
		listens := func() bool { return slices.Contains(s.reads(), s.topics.Announcement()) }
		if !listens() {
			t.Error("it does not read announcements")
		}
		s.spend(20_000)
		before := len(s.heard(wire.TypeHello))
		wait(24 * time.Hour) // The coordinator sends no answer.
		if spoke := len(s.heard(wire.TypeHello)) - before; listens() ||
			!slices.Contains(s.reads(), s.topics.CoordinatorToAgent("press")) || spoke > 24 {
			t.Errorf("reads %q, and spoke %d times in a day", s.reads(), spoke)
		}
		s.direct(wire.TypeHelloAnswer, 2,
			(&wire.HelloAnswer{Announcement: wire.Digest{1}, SelectionStatus: wire.StatusNotSelected}).Body())
		if listens() {
			t.Error("it reads announcements again, since somebody named one")
		}
		set(october.AddDate(0, 0, 1))
		wait(time.Hour + time.Minute)
		if got := s.counted(); got.Month != "2026-11" || got.UsedBytes > 1000 || !listens() {
			t.Errorf("in November: %+v, reads %q", got, s.reads())
		}
	})
}
