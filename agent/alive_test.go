package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
)

// alive asks the agent for a sign of life, for some seconds.
func (s *scene) alive() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.host.Alive(ctx)
}

// TestAlive wants a sign of life from an agent that works or waits for room on
// its disk, and none from one that hangs.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var hang bool
		s.cfg.Suspend = func(agent.Moment, time.Time) time.Duration {
			if hang {
				return time.Minute
			}
			return 0
		}
		s.start()
		if err := s.alive(); err != nil {
			t.Error(err)
		}
		full := filepath.Join(s.cfg.Dir, "obeyed", "in the way")
		if err := os.MkdirAll(full, 0o700); err != nil {
			t.Fatal(err)
		}
		announcement := s.announce(4, s.training(taskOf("a task"), 0, 0))
		wait(12 * time.Second)
		for range 3 {
			if err := s.alive(); err != nil {
				t.Errorf("with a full disk: %v", err)
			}
		}
		if err := os.RemoveAll(filepath.Dir(full)); err != nil {
			t.Fatal(err)
		}
		wait(6 * time.Second)
		hang = true
		s.invite(4, announcement)
		wait(time.Second)
		if s.alive() == nil {
			t.Error("an agent that hangs is alive")
		}
		wait(2 * time.Minute)
		if err := s.alive(); err != nil {
			t.Error(err)
		}
		s.stop()
		if s.alive() == nil {
			t.Error("an agent that has ended is alive")
		}
	})
}
