package agent_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// rare is a response policy that selects one agent in 2³² to answer. Other agents disconnect for 1 to 11 minutes.
var rare = wire.AgentResponsePolicy{AnswerProbability: 1, DisconnectMillis: 60_000, AbsenceSpreadMillis: 600_000}

// gathers announces a round with a response policy, and waits until the agent has reacted.
func (s *scene) gathers(round wire.RoundID, r wire.AgentResponsePolicy) wire.Digest {
	a := s.training(taskOf("plant"), 1, 2, 3)
	a.Phase, a.ResponsePolicy = wire.PhaseGathering, r
	d := s.announce(round, a)
	synctest.Wait()
	return d
}

// states returns the presence states that the agent has published, without the states in its MQTT wills.
func (s *scene) states() (all []wire.PresenceState) {
	for _, e := range s.heard(wire.TypePresence) {
		if p, err := wire.DecodePresence(e.Body); err == nil && p.State != wire.PresenceLost {
			all = append(all, p.State)
		}
	}
	return all
}

// TestLeaves checks that an agent that is not selected to answer publishes its offline presence, disconnects, and
// reconnects later.
func TestLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.gathers(1, rare)
		wait(time.Minute)
		if n := len(s.heard(wire.TypeHello)); n > 0 {
			t.Errorf("%d hellos of an agent that was not drawn", n)
		}
		if len(s.paused()) != 1 || s.paused()[0] < time.Minute || s.paused()[0] > 11*time.Minute {
			t.Fatalf("pauses %v, want one of 1m to 11m", s.paused())
		}
		if got := s.states(); !slices.Equal(got, []wire.PresenceState{wire.PresenceOnline, wire.PresenceOffline}) {
			t.Errorf("presence %v, want online and offline", got)
		}
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		s.tell(mqtt.LinkUp{})
		wait(time.Minute)
		if len(s.paused()) != 1 {
			t.Errorf("it leaves before it has read an announcement: %v", s.paused())
		}
		s.gathers(2, rare)
		if len(s.paused()) != 2 {
			t.Errorf("pauses %v, want another one", s.paused())
		}
	})
}

// TestStays checks that an agent stays connected if it needs the connection. In the first case the agent does not need
// it and must disconnect.
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
			c.Mesh = &mesh.Config{MaxNeighbors: 1, Cell: "hall"}
		}, gathers, false},
		{"models for predictions", func(c *agent.Config) {
			c.Predict = &predict.Config{MaxKeptModels: 1, MinModelChangeInterval: time.Minute}
		}, gathers, false},
		{"a test of the broker", func(c *agent.Config) { c.SelfTestTimeout = time.Second }, gathers, false},
		{"a task to fetch", func(*agent.Config) {}, func(s *scene) {
			a := s.training(taskOf("plant"), 1, 2, 3)
			a.Phase, a.ResponsePolicy, a.Task.Inline, a.Task.ManifestHash = wire.PhaseGathering, rare, nil,
				wire.Digest{1}
			s.announce(1, a)
		}, false},
		{"work", func(*agent.Config) {}, func(s *scene) {
			a := s.training(taskOf("plant"), 1, 2, 3)
			a.ResponsePolicy = wire.AgentResponsePolicy{AnswerProbability: math.MaxUint32, DisconnectMillis: 1}
			d := s.announce(1, a)
			s.invite(1, d)
			s.direct(wire.TypeHelloAnswer, 1, (&wire.HelloAnswer{Announcement: d,
				SelectionStatus: wire.StatusNotSelected}).Body())
		}, false},
		{"a task that it has no key for", func(*agent.Config) {}, func(s *scene) {
			is, a := s.seals(wire.SealSecret{1}), s.training(taskOf("plant"), 1, 2, 3)
			a.Phase, a.ResponsePolicy = wire.PhaseGathering, rare
			s.announce(1, is.sealedBlobs(a))
			if told := eventsOf[fetch.GroupKeyAwaited](s); len(told) > 0 {
				s.t.Error("it says that it asks for the key, and says no hello")
			}
		}, true},
		{"no time is told", func(*agent.Config) {}, func(s *scene) {
			s.gathers(1,
				wire.AgentResponsePolicy{AnswerProbability: 1})
		},
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				c.have(&s.cfg)
				s.start()
				c.do(s)
				if n := len(s.paused()); c.leaves != (n > 0) {
					t.Errorf("it has left %d times", n)
				}
			})
		})
	}
}

// TestPresenceOfTheRound checks that, from its second connection on, an agent publishes its presence only while it
// participates in a round.
func TestPresenceOfTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, quiet := newScene(t), rare
		quiet.PresenceInRoundOnly = true
		s.start()
		s.gathers(1, quiet)
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		if w := s.will(); w.Topic != "" {
			t.Errorf("the second link has a will on %s", w.Topic)
		}
		before := len(s.states())
		s.tell(mqtt.LinkUp{})
		a := s.training(taskOf("plant"), 1, 2, 3)
		a.ResponsePolicy = quiet
		d := s.announce(2, a)
		if n := len(s.states()); n != before {
			t.Errorf("presence %v over the second link, want none", s.states()[before:])
		}
		s.invite(2, d)
		if got := s.states()[before:]; !slices.Equal(got, []wire.PresenceState{wire.PresenceOnline}) {
			t.Errorf("presence %v of a participant, want online", got)
		}
		s.tell(mqtt.LinkDown{})
		if w := s.will(); w.Topic == "" {
			t.Error("the link of a participant has no will")
		}
	})
}

// retained returns the presence message that the broker retains for the agent.
func (s *scene) retained() (payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.said[1:] { // The first message is the MQTT will.
		if m.Retained && m.Topic == s.topics.Presence("press") {
			payload = m.Payload
		}
	}
	return payload
}

// TestPresenceLeftBehind checks that the broker retains the offline presence of an agent that disconnects. If agents
// publish their presence only during rounds, the broker must retain no presence.
func TestPresenceLeftBehind(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newScene(t), rare
			r.PresenceInRoundOnly = quiet
			s.start()
			if len(s.retained()) == 0 {
				t.Error("the first link has no presence")
			}
			s.gathers(1, r)
			if got := s.states(); len(s.paused()) != 1 || got[len(got)-1] != wire.PresenceOffline {
				t.Errorf("presence %v, and %d pauses: want offline, and one", got, len(s.paused()))
			}
			if kept := len(s.retained()) > 0; kept == quiet {
				t.Errorf("only participants: %t, and the broker keeps a presence: %t", quiet, kept)
			}
		})
	}
}

// TestAwayIsTold checks that the agent reports the end of a planned disconnection. After a lost connection, it must not
// report such an end.
func TestAwayIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.gathers(1, rare)
		left := time.Now()
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		all := eventsOf[host.BrokerLinkChanged](s)
		if got := all[len(all)-1].ReconnectAt.Sub(left); got != s.paused()[0] {
			t.Errorf("back after %s, want %s", got, s.paused()[0])
		}
		s.tell(mqtt.LinkUp{})
		s.gathers(2, rare)
		s.tell(mqtt.LinkDown{Err: mqtt.ErrClosed}) // The connection is lost before the planned disconnection begins.
		all = eventsOf[host.BrokerLinkChanged](s)
		if at := all[len(all)-1].ReconnectAt; !at.IsZero() {
			t.Errorf("a lost link is back at %s", at)
		}
	})
}

// TestAwayReports checks the metric reports of an agent that is rarely selected and therefore disconnects. The agent
// must stay connected until its first report if it would be away longer, and send an overdue report after it returns.
// The validity of a report must include the time away.
func TestAwayReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: 5 * time.Minute,
			ReadMetrics: func() []wire.ReportMetric { return nil }}
		s.start()
		s.gathers(1, rare)
		if n := len(s.heard(wire.TypeMetricsReport)); n != 0 || len(s.paused()) != 0 {
			t.Fatalf("%d reports and %d pauses at once, want none: all agents would report together", n,
				len(s.paused()))
		}
		wait(time.Minute)
		all := s.heard(wire.TypeMetricsReport)
		if len(all) != 1 || len(s.paused()) != 1 {
			t.Fatalf("%d reports and pauses %v after a minute, want one", len(all), s.paused())
		}
		if m, err := wire.DecodeAgentMetricsReport(all[0].Body); err != nil || m.IntervalSeconds != 660 {
			t.Errorf("the next report comes within %d s, want 660; error %v", m.IntervalSeconds, err)
		}
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		wait(10 * time.Minute)
		s.tell(mqtt.LinkUp{})
		s.gathers(2, rare)
		if n := len(s.heard(wire.TypeMetricsReport)); n != 2 || len(s.paused()) != 2 {
			t.Errorf("%d reports and pauses %v on the second link, want two", n, s.paused())
		}
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		s.tell(mqtt.LinkUp{})
		s.gathers(3, wire.AgentResponsePolicy{AnswerProbability: 1, DisconnectMillis: 1000})
		if n := len(s.heard(wire.TypeMetricsReport)); n != 2 || len(s.paused()) != 3 {
			t.Errorf("%d reports and pauses %v on the third link, want two and another one: no report is due", n,
				s.paused())
		}
	})
}

// TestAwayIsNotStale checks that an agent that was disconnected on purpose during a round does not report announcements
// as stale. After its return it must wait for the full time.
func TestAwayIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		a := s.training(taskOf("plant"), 1, 2, 3)
		a.ResponsePolicy = wire.AgentResponsePolicy{AnswerProbability: 1,
			DisconnectMillis: uint32(time.Hour.Milliseconds())}
		s.announce(1, a)
		if len(s.paused()) != 1 {
			t.Fatal("it stays")
		}
		s.tell(mqtt.LinkDown{Err: mqtt.ErrPlannedDisconnect})
		wait(time.Hour)
		s.tell(mqtt.LinkUp{})
		if told := eventsOf[announcement.AnnouncementsStale](s); len(told) > 0 {
			t.Errorf("%+v of an agent that was away by plan", told)
		}
		wait(3 * time.Minute) // maximum duration of the round
		if told := eventsOf[announcement.AnnouncementsStale](s); len(told) != 1 {
			t.Errorf("told %d times that nothing comes, want once", len(told))
		}
	})
}
