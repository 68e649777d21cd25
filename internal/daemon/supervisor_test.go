package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// supervised is a supervisor and what it has told systemd.
type supervised struct {
	*Supervisor
	mu   sync.Mutex
	said []string
	log  bytes.Buffer // to be read when the supervisor is done
}

func newSupervised(watchdog time.Duration) *supervised {
	s := new(supervised)
	s.Supervisor = &Supervisor{
		Status: newStatus(), log: slog.New(slog.NewTextHandler(&s.log, nil)), watchdog: watchdog,
		hangups: make(chan os.Signal, 1),
		tell: func(assignments ...string) error {
			s.hear(strings.Join(assignments, " "))
			return nil
		},
	}
	return s
}

func (s *supervised) hear(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

func (s *supervised) wants(t *testing.T, said ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.said, said) {
		t.Errorf("systemd heard %q, want %q", s.said, said)
	}
	s.said = nil
}

// TestWatchdog wants systemd to hear of life only after all workers were asked.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervised(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var failed, hung atomic.Bool
		worker := func(ctx context.Context) error {
			if hung.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			if failed.Load() {
				return errors.New("the port is gone")
			}
			return nil
		}
		s.Begin(ctx, nil, Worker{"one", func(context.Context) error { return nil }}, Worker{"other", worker})
		s.wants(t, "READY=1 STATUS=connecting to the broker")
		pass := func(d time.Duration) { <-time.After(d) }
		pass(41 * time.Second)
		s.wants(t, "WATCHDOG=1", "WATCHDOG=1")
		hung.Store(true)
		pass(5 * time.Minute)
		s.wants(t)
		hung.Store(false)
		failed.Store(true)
		pass(time.Minute)
		s.wants(t)
		failed.Store(false)
		pass(40 * time.Second)
		s.wants(t, "WATCHDOG=1", "WATCHDOG=1")
		stop()
		s.Wait()
		s.wants(t, "STOPPING=1")
		for _, line := range []string{"the other does not answer", "the port is gone"} {
			if !strings.Contains(s.log.String(), line) {
				t.Errorf("the log does not say %q:\n%s", line, &s.log)
			}
		}
	})
}

func TestReloadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervised(0)
		ctx, stop := context.WithCancel(t.Context())
		s.Begin(ctx, func(ctx context.Context) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a reload may take for ever")
			}
			s.hear("reloaded")
		})
		s.wants(t, "READY=1 STATUS=connecting to the broker")
		s.hangups <- syscall.SIGHUP
		s.wants(t, "RELOADING=1", "reloaded", "READY=1 STATUS=connecting to the broker")
		AgentWatch{s.Status, new(Readiness)}.Observe(agent.LinkChanged{Up: true})
		s.wants(t, "STATUS=connected to the broker")
		stop()
		s.Wait()
	})
}

func TestStatus(t *testing.T) {
	s := newStatus()
	for _, tt := range []struct {
		fact any
		want string
	}{
		{agent.LinkChanged{Up: true}, "connected to the broker"},
		{round.WorkStarted{Round: 3}, "connected to the broker; at work in round 3"},
		{round.WorkEnded{Round: 3, Result: round.WorkAccepted}, "connected to the broker; round 3 accepted"},
		{agent.LinkChanged{Err: errors.New("no route")}, "not connected to the broker: no route; round 3 accepted"},
		{agent.LinkChanged{Err: mqtt.ErrPaused, Back: time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)},
			"away from the broker by plan, until 2026-03-01 12:00:00; round 3 accepted"},
		{coordinator.LinkChanged{Up: true}, "connected to the broker; round 3 accepted"},
		{coordinator.SubscriptionsRefused{Filters: []string{"s/+", "p/+"}},
			"connected to the broker, which refuses 2 subscriptions; round 3 accepted"},
		{coordinator.SubscriptionsRefused{}, "connected to the broker; round 3 accepted"},
		{agent.SubscriptionsRefused{Filters: []string{"d/a"}, Site: []string{"b/hall/+"}},
			"connected to the broker, which refuses 2 subscriptions; round 3 accepted"},
		{agent.SubscriptionsRefused{}, "connected to the broker; round 3 accepted"},
		{round.GatheringExtended{Agents: 1, Minimum: 4},
			"connected to the broker; waiting for agents: 1 of 4 are present"},
		{round.RoundOpened{Round: 4, Agents: 9, Participants: make([]wire.AgentID, 5)},
			"connected to the broker; round 4 is open for 5 of 9 agents"},
		{round.RoundClosed{Round: 4, Accepted: 4, Selected: 5}, "connected to the broker; round 4 closed with 4 of 5"},
		{round.RoundAbandoned{Round: 5, Accepted: 1, Selected: 5},
			"connected to the broker; round 5 abandoned with 1 of 5"},
		{round.RoundWaits{Reason: round.WaitNewRows, Fresh: 1, Agents: 3, Rows: 10},
			"connected to the broker; 1 of 3 agents have 10 new rows"},
		{round.RoundWaits{Reason: round.WaitWindow, Until: time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)},
			"connected to the broker; rounds rest until Sun 22:00"},
		{round.RunFinished{Version: 4, Reason: stop.Rounds},
			"connected to the broker; the run is finished (rounds), with version 4"},
		{round.PhaseEntered{}, "connected to the broker; the run is finished (rounds), with version 4"},
	} {
		switch tt.fact.(type) {
		case agent.Fact, round.AgentFact:
			testkit.Tell(AgentWatch{s, new(Readiness)}, tt.fact)
		default:
			testkit.Tell(CoordinatorWatch{s, new(Readiness)}, tt.fact)
		}
		if got := s.String(); got != tt.want {
			t.Errorf("after %T: %q, want %q", tt.fact, got, tt.want)
		}
	}
}
