package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// alive calls CheckAlive with a timeout of 20 seconds.
func (s *scene) alive() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.host.CheckAlive(ctx)
}

// TestAlive checks that CheckAlive succeeds for an agent that works or waits for disk space, and fails for an agent
// whose event loop hangs.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var hang bool
		s.cfg.JudgeDevice = func(before device.RuleVerdict) device.RuleVerdict {
			if hang {
				hang = false
				<-time.After(time.Minute)
			}
			return before
		}
		s.start()
		if err := s.alive(); err != nil {
			t.Error(err)
		}
		full := filepath.Join(s.cfg.StateDir, "obeyed", "in the way")
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

// stuck is a trainer whose training blocks wait until the channel free is closed.
type stuck struct {
	training.Trainer
	free chan struct{}
}

func (s stuck) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	b, err := s.Trainer.NewBlock(ctx, r, p, j)
	return hook{b, func(uint64) { <-s.free }}, err
}

// TestAliveWhileTraining checks that CheckAlive succeeds during training, and fails only long after the round has
// ended.
func TestAliveWhileTraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		hang := stuck{training.LocalTrainer{}, make(chan struct{})}
		s.cfg.Mesh, s.cfg.Training.Trainer = &mesh.Config{FillRandom: func(p []byte) { clear(p) }}, hang
		s.start()
		task := taskOf("a task")
		task.Training.NormalizesStepSize = false
		task.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 1000,
			SnapshotCodec: spec.CodecRaw}
		const day = 24 * 60 * 60 * 1000
		a := s.training(task, 0, 0)
		a.RoundTimeoutMillis = day
		invitation := wire.Invitation{Agent: "press", Announcement: s.announce(4, a), RemainingMillis: day,
			StepSizeWeight: 1,
			MustSendUpdate: true}
		s.direct(wire.TypeInvitation, 4, invitation.Body())
		wait(time.Hour)
		if err := s.alive(); err != nil {
			t.Errorf("while it trains: %v", err)
		}
		s.announce(5, s.training(taskOf("another task"), 0, 0))
		wait(9 * time.Minute)
		if err := s.alive(); err != nil {
			t.Errorf("just told to end: %v", err)
		}
		wait(2 * time.Minute)
		if err := s.alive(); err == nil || !strings.Contains(err.Error(), "a training job is still running 11m0s "+
			"after it was cancelled") {
			t.Errorf("told to end long ago: %v", err)
		}
		close(hang.free)
		wait(time.Second)
		if err := s.alive(); err != nil {
			t.Errorf("ended: %v", err)
		}
	})
}
