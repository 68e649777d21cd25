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

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
)

// supervised is a SystemdSupervisor under test, together with the messages that it sends to systemd.
type supervised struct {
	*SystemdSupervisor
	board *status.ConditionBoard
	mu    sync.Mutex
	said  []string
	log   bytes.Buffer // log output; may be read after the supervisor has ended
}

func newSupervised(watchdog time.Duration) *supervised {
	s, line := new(supervised), NewStatusLine()
	s.board = line.NewBoard("")
	s.board.ResolveCondition(status.StartingCondition.Name)
	<-line.boardChanged
	s.SystemdSupervisor = &SystemdSupervisor{
		Status: line, log: slog.New(slog.NewTextHandler(&s.log, nil)), watchdogTimeout: watchdog,
		reloadSignals: make(chan os.Signal, 1),
		notifySystemd: func(assignments ...string) error {
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

// TestWatchdog checks that the watchdog is fed only after all workers were checked.
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
		s.ReportReadyAndSupervise(ctx, nil, Worker{"one", func(context.Context) error { return nil }}, Worker{"other",
			worker})
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
		for _, line := range []string{"the other is unresponsive", "the port is gone"} {
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
		s.ReportReadyAndSupervise(ctx, func(ctx context.Context) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a reload may take for ever")
			}
			s.hear("reloaded")
		})
		s.wants(t, "READY=1 STATUS=connecting to the broker")
		s.reloadSignals <- syscall.SIGHUP
		s.wants(t, "RELOADING=1", "reloaded", "READY=1 STATUS=connecting to the broker")
		var d observe.EventDescription
		d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
		s.board.ApplyDescription(&d)
		s.wants(t, "STATUS=connected to the broker")
		stop()
		s.Wait()
	})
}
