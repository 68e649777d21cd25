package agent_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// rare asks one agent in 2³², and lets the others leave for 1 to 11 minutes.
var rare = wire.Respond{Of: 1, After: 60_000, Within: 600_000}

// gathers is an announcement that asks as r says.
func (s *scene) gathers(round wire.RoundID, r wire.Respond) wire.Digest {
	a := s.training(taskOf("plant"), 1, 2, 3)
	a.Phase, a.Respond = wire.PhaseGathering, r
	return s.announce(round, a)
}

// states are those of the presence that the agent has told, its wills aside.
func (s *scene) states() (all []wire.State) {
	for _, e := range s.heard(wire.TypePresence) {
		if p, err := wire.DecodePresence(e.Body); err == nil && p.State != wire.StateLost {
			all = append(all, p.State)
		}
	}
	return all
}

// TestLeaves has an agent that is not drawn disconnect, with a last word, and come back.
func TestLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.gathers(1, rare)
		wait(time.Minute)
		if n := len(s.heard(wire.TypeHello)); n > 0 {
			t.Errorf("%d hellos of an agent that was not drawn", n)
		}
		if len(s.pauses) != 1 || s.pauses[0] < time.Minute || s.pauses[0] > 11*time.Minute {
			t.Fatalf("pauses %v, want one of 1m to 11m", s.pauses)
		}
		if got := s.states(); !slices.Equal(got, []wire.State{wire.StateOnline, wire.StateOffline}) {
			t.Errorf("presence %v, want online and offline", got)
		}
		s.tell(mqtt.Down{Err: mqtt.ErrPaused})
		s.tell(mqtt.Up{})
		wait(time.Minute)
		if len(s.pauses) != 1 {
			t.Errorf("it leaves before it has read an announcement: %v", s.pauses)
		}
		s.gathers(2, rare)
		if len(s.pauses) != 2 {
			t.Errorf("pauses %v, want another one", s.pauses)
		}
	})
}

// TestStays has agents that need the link for something else keep it. The first one has no need, and leaves.
func TestStays(t *testing.T) {
	gathers := func(s *scene) { s.gathers(1, rare) }
	for _, c := range []struct {
		name   string
		have   func(c *agent.Config)
		do     func(s *scene)
		leaves bool
	}{
		{"no need", func(*agent.Config) {}, gathers, true},
		{"neighbours over this link", func(c *agent.Config) {
			c.Mesh = &agent.MeshConfig{MaxDegree: 1, Cell: "hall"}
		}, gathers, false},
		{"models to predict with", func(c *agent.Config) {
			c.Predict = &agent.Predictions{Keep: 1, Refresh: time.Minute}
		}, gathers, false},
		{"a test of the broker", func(c *agent.Config) { c.SelfTest = time.Second }, gathers, false},
		{"a task to fetch", func(*agent.Config) {}, func(s *scene) {
			a := s.training(taskOf("plant"), 1, 2, 3)
			a.Phase, a.Respond, a.Task.Inline, a.Task.Manifest = wire.PhaseGathering, rare, nil, wire.Digest{1}
			s.announce(1, a)
		}, false},
		{"work", func(*agent.Config) {}, func(s *scene) {
			a := s.training(taskOf("plant"), 1, 2, 3)
			a.Respond = wire.Respond{Of: math.MaxUint32, After: 1}
			d := s.announce(1, a)
			s.invite(1, d)
			s.direct(wire.TypeStanding, 1, (&wire.Standing{Announcement: d, Place: wire.PlaceNotSelected}).Body())
		}, false},
		{"no time is told", func(*agent.Config) {}, func(s *scene) { s.gathers(1, wire.Respond{Of: 1}) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				c.have(&s.cfg)
				s.start()
				c.do(s)
				if n := len(s.pauses); c.leaves != (n > 0) {
					t.Errorf("it has left %d times", n)
				}
			})
		})
	}
}

// TestPresenceOfTheRound has an agent tell its presence only while it has a part in a round, from its second link on.
func TestPresenceOfTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, quiet := newScene(t), rare
		quiet.Round = true
		s.start()
		s.gathers(1, quiet)
		s.tell(mqtt.Down{Err: mqtt.ErrPaused})
		if w := s.will(); w.Topic != "" {
			t.Errorf("the second link has a will on %s", w.Topic)
		}
		before := len(s.states())
		s.tell(mqtt.Up{})
		a := s.training(taskOf("plant"), 1, 2, 3)
		a.Respond = quiet
		d := s.announce(2, a)
		if n := len(s.states()); n != before {
			t.Errorf("presence %v over the second link, want none", s.states()[before:])
		}
		s.invite(2, d)
		if got := s.states()[before:]; !slices.Equal(got, []wire.State{wire.StateOnline}) {
			t.Errorf("presence %v of a participant, want online", got)
		}
		s.tell(mqtt.Down{})
		if w := s.will(); w.Topic == "" {
			t.Error("the link of a participant has no will")
		}
	})
}
