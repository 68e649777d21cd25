package coordinator_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestVanishedAndLate runs ten agents. Three agents vanish in round 3, and two agents miss the deadline of round 3.
// Round 3 must close with the other five agents, the next round must begin without those five, and later rounds only
// without the three.
func TestVanishedAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 10, memory.Options{})
		r := &f.cfg.Round
		r.Quorum, r.Gather.TargetAgents, r.Gather.MinAgents, r.RoundTimeout = 5, 0, 5, time.Minute
		for _, a := range f.agents[:3] {
			a.moment = func(m any) {
				if w, ok := m.(agentround.WorkStarted); ok && w.Round == 3 {
					a.kill()
				}
			}
		}
		for _, a := range f.agents[3:5] {
			var deadline time.Time
			a.moment = func(m any) {
				switch m := m.(type) {
				case agentround.WorkStarted:
					deadline = time.Now().Add(m.TimeLeft)
				case training.LocalTrainingFinished:
					if m.Round == 3 {
						<-time.After(time.Until(deadline) + time.Second)
					}
				}
			}
		}
		f.start()
		f.finished(time.Hour)
		closed := events[round.RoundClosed](f)
		if len(closed) != 6 {
			t.Fatalf("%d rounds closed, want 6:\n%s", len(closed), f.tail(60))
		}
		for _, c := range closed {
			want := round.RoundClosed{Round: c.Round, Kind: c.Kind, NewModelVersion: c.NewModelVersion,
				SelectedAgents: 10, AcceptedUpdates: 10,
				RoundDuration: c.RoundDuration}
			switch {
			case c.Round == 3:
				want.AcceptedUpdates, want.ClosedByDeadline, want.MissingAgents, want.RoundDuration = 5, true,
					[]wire.AgentID{"a0", "a1", "a2", "a3", "a4"}, time.Minute
			case c.Round == 4: // the late agents are suspended
				want.SelectedAgents, want.AcceptedUpdates = 5, 5
			case c.Round > 4:
				want.SelectedAgents, want.AcceptedUpdates = 7, 7
			}
			if c.Round != want.Round || c.SelectedAgents != want.SelectedAgents ||
				c.AcceptedUpdates != want.AcceptedUpdates ||
				c.ClosedByDeadline != want.ClosedByDeadline ||
				!slices.Equal(c.MissingAgents, want.MissingAgents) || c.RoundDuration != want.RoundDuration {
				t.Errorf("got  %+v\nwant %+v", c, want)
			}
		}
		for _, late := range []wire.AgentID{"a3", "a4"} {
			ends := events[agentround.WorkEnded](f, late)
			if len(ends) != 5 || ends[2].Round != 3 || ends[3].Round != 5 ||
				ends[2].Result != agentround.WorkSuperseded && ends[2].RefusalReason != wire.RefuseLate {
				t.Errorf("%s: the late one ended as %+v", late, ends)
			}
		}
		for _, no := range events[round.UpdateRefused](f) {
			if no.Reason != wire.RefuseLate || no.Round != 3 {
				t.Errorf("refused: %+v", no)
			}
		}
	})
}

// TestBrokerCut checks that no work is lost while the broker is unavailable at various points of a round.
func TestBrokerCut(t *testing.T) {
	var want wire.Digest
	for i, at := range []func(any) bool{
		func(any) bool { return false },
		func(x any) bool { e, ok := x.(round.AgentEligible); return ok && e.EligibleAgents == 2 },
		func(x any) bool { _, ok := x.(round.RoundOpened); return ok },
		func(x any) bool { e, ok := x.(round.AgentJoined); return ok && e.Round == 2 },
		func(x any) bool { e, ok := x.(round.UpdateAccepted); return ok && e.Round == 3 },
		func(x any) bool { e, ok := x.(aggregation.ModelReady); return ok && e.Round == 4 },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 3, memory.Options{})
			cut := make(chan struct{}, 1)
			var told []bool // values that were passed to Config.OnLinkChange
			f.cfg.OnLinkChange = func(up bool) {
				f.mu.Lock()
				defer f.mu.Unlock()
				told = append(told, up)
			}
			f.coord.moment = func(m any) {
				if at(m) {
					select {
					case cut <- struct{}{}:
					default:
					}
				}
			}
			clients := []string{f.topics.ClientID(wire.CoordinatorID), f.topics.ClientID("a0"), f.topics.ClientID("a1"),
				f.topics.ClientID("a2")}
			f.start()
			if i > 0 {
				<-cut
				for _, c := range clients {
					f.broker.Disconnect(c)
				}
				wait(90 * time.Second)
				for _, c := range clients {
					f.broker.Reconnect(c)
				}
			}
			hash := f.finished(time.Hour)
			if i == 0 {
				want = hash
			}
			if hash != want {
				t.Errorf("cut %d: model %x, want %x", i, hash[:4], want[:4])
			}
			f.checkOnce("cut")
			changes := events[host.BrokerLinkChanged](f, wire.CoordinatorID)
			if i > 0 && len(changes) < 3 {
				t.Errorf("cut %d: the link changed %d times", i, len(changes))
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if !slices.EqualFunc(told, changes, func(up bool,
				e host.BrokerLinkChanged) bool {
				return up == e.IsConnected
			}) {
				t.Errorf("cut %d: OnLinkChange was called with %v, but the events are %+v", i, told, changes)
			}
		})
	}
}

// TestAcceptanceLostWithTheLink checks that an agent counts its update as accepted if its connection fails while the
// acceptance is being sent, and recovers in the next round.
func TestAcceptanceLostWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{Delay: func(string) time.Duration { return 50 * time.Millisecond }})
		cut := make(chan struct{})
		f.coord.moment = func(m any) {
			if e, ok := m.(round.UpdateAccepted); ok && e.Agent == "a0" && e.Round == 3 {
				close(cut)
			}
		}
		f.start()
		<-cut
		f.broker.Disconnect(f.topics.ClientID("a0"))
		f.until(time.Hour, "round 4", func() bool {
			return slices.ContainsFunc(events[round.RoundOpened](f),
				func(o round.RoundOpened) bool { return o.Round == 4 })
		})
		f.broker.Reconnect(f.topics.ClientID("a0"))
		f.finished(time.Hour)
		f.checkOnce("acceptance lost")
		f.checkCounts("acceptance lost")
	})
}

// TestLoss checks that a run completes without an abandoned or delayed round if a fifth of all messages in each
// direction is lost.
func TestLoss(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			f := newFederation(t, 4, memory.Options{Drop: func(string) bool { return rng.IntN(5) == 0 }})
			f.cfg.Round.Quorum = 3
			if seed%2 == 1 {
				large(f)
			}
			f.start()
			f.finished(20 * time.Minute)
			closed := events[round.RoundClosed](f)
			if len(closed) != f.cfg.Round.MaxAggregations+1 {
				t.Errorf("seed %d: %d rounds closed", seed, len(closed))
			}
			// A missed announcement must not cost a round; one agent may fail to fetch a model.
			for _, c := range closed {
				if c.AcceptedUpdates < 3 || c.ClosedByDeadline {
					t.Errorf("seed %d: %+v; declined %+v", seed, c, events[round.AgentDeclined](f))
				}
			}
		})
	}
}

// large configures a model of about 270 kB, which is downloaded in parts and uploaded against credit.
func large(f *federation) {
	f.cfg.Task.Model.HiddenUnits = []uint32{256, 256}
	f.cfg.Task.Training.StepSize = 0.01
	f.cfg.Round.MaxAggregations = 2
}
