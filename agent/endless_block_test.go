package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// stepCount is a trainer that counts the local training steps.
type stepCount struct {
	training.Trainer
	atomic.Uint64
}

func (c *stepCount) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock, error) {
	b, err := c.Trainer.NewBlock(ctx, r, p, j)
	return hook{b, func(steps uint64) { c.Add(steps) }}, err
}

// hook is a training block that calls before with the number of steps that it is about to take.
type hook struct {
	training.LocalStepBlock
	before func(steps uint64)
}

func (h hook) TakeSteps(x []float32, first, last uint64) error {
	h.before(last - first + 1)
	return h.LocalStepBlock.TakeSteps(x, first, last)
}

// endlessScene returns a test scene with endless blocks (mixing continues across rounds), one local step per second and
// a hundred local steps per round.
func endlessScene(t *testing.T) (*scene, *stepCount) {
	s := newScene(t)
	steps := &stepCount{Trainer: slow.Trainer{Trainer: training.LocalTrainer{},
		StepTime: s.cfg.Training.DeclaredStepTime}}
	s.cfg.Mesh, s.cfg.Training.Trainer = &mesh.Config{FillRandom: func(p []byte) { clear(p) }}, steps
	return s, steps
}

const hour = 60 * 60 * 1000 // one hour in milliseconds

// inviteToBlock announces a round of a run and invites the agent to train in a mixing block without neighbours.
func (s *scene) inviteToBlock(run wire.RunID, r, block wire.RoundID) {
	s.inviteToTask(run, r, block, 0.1)
}

// inviteToTask is like inviteToBlock, but with a task that has the given step size.
func (s *scene) inviteToTask(run wire.RunID, r, block wire.RoundID, stepSize float64) {
	task := taskOf("endless")
	task.Training.NormalizesStepSize, task.Training.MaxLocalSteps, task.Training.StepSize = false, 100, stepSize
	task.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotWaitMillis: 1000, SnapshotRetryMillis: 1000,
		LateSnapshotMillis: 1000,
		SnapshotCodec:      spec.CodecRaw, HasEndlessBlocks: true}
	a := s.training(task, 0, 0)
	a.RoundTimeoutMillis = hour
	i := wire.Invitation{Agent: "press", Announcement: s.announceIn(run, r, a), RemainingMillis: hour,
		StepSizeWeight:   1,
		MustSendUpdate:   true,
		MixingBlockRound: block}
	h := s.header(wire.TypeInvitation, r)
	h.Run = run
	s.send(s.topics.CoordinatorToAgent("press"), s.message(h, i.Body()))
}

func (s *scene) announceIn(run wire.RunID, r wire.RoundID, a wire.Announcement) wire.Digest {
	h := s.header(wire.TypeAnnouncement, r)
	h.Run = run
	signed := s.sign(h, a.Body())
	s.send(s.topics.Announcement(), signed)
	e, err := wire.ParseEnvelope(signed)
	if err != nil {
		s.t.Fatal(err)
	}
	return e.Digest()
}

// TestEndlessBlockRests checks that an endless block pauses after the current round while the device's owner forbids
// work.
func TestEndlessBlockRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, steps := endlessScene(t)
		set := heated(s)
		s.start()
		s.inviteToBlock(5, 4, 4)
		wait(10 * time.Second)
		set(90)
		wait(80 * time.Second)
		if n := steps.Load(); n < 80 || len(s.heard(wire.TypeUpdate)) > 0 {
			t.Errorf("%d steps in 90 s, and %d updates", n, len(s.heard(wire.TypeUpdate)))
		}
		wait(time.Minute)
		if _, u := s.update(); u.LocalSteps == 0 {
			t.Error("the round that had begun was not finished")
		}
		resting := steps.Load()
		wait(10 * time.Minute)
		if n := steps.Load(); n != resting {
			t.Errorf("%d local steps on a device that is too hot", n-resting)
		}
		set(50)
		wait(2 * time.Minute)
		if n := steps.Load() - resting; n < 80 {
			t.Errorf("%d local steps in the two minutes after it has cooled", n)
		}
	})
}

// sparing is a part of the agent that requires training to pause, and allows only half of the local steps of a round.
type sparing struct{ rest atomic.Bool }

func (s *sparing) TrainingMustRest() bool  { return s.rest.Load() }
func (*sparing) AllowedStepShare() float64 { return 0.5 }

// TestEndlessBlockRestsForAnyPart checks that an endless block pauses while at least one part of the agent requires a
// pause.
func TestEndlessBlockRestsForAnyPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, steps := endlessScene(t)
		p := &sparing{}
		s.part = p
		s.start()
		s.inviteToBlock(5, 4, 4)
		wait(3 * time.Minute)
		p.rest.Store(true)
		s.send("nonsense", nil) // Any message makes the agent check whether it must pause.
		wait(time.Minute)
		resting := steps.Load()
		wait(time.Hour)
		if n := steps.Load(); resting < 100 || n != resting {
			t.Errorf("%d local steps, and %d more while a part has training rest", resting, n-resting)
		}
		p.rest.Store(false)
		s.send("nonsense", nil)
		wait(2 * time.Minute)
		if n := steps.Load() - resting; n < 80 {
			t.Errorf("%d local steps in two minutes after the rest", n)
		}
	})
}

// TestPartLimitsLocalSteps checks that a round uses the smallest share of local steps that any part of the agent
// allows.
func TestPartLimitsLocalSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Training.DeclaredStepTime = 300 * time.Millisecond // The agent can take 10 local steps in 3 s.
		s.part = &sparing{}
		s.start()
		s.invite(1, s.announce(1, s.training(taskOf("one"), 1, 2)))
		wait(time.Minute)
		if all := eventsOf[training.LocalTrainingFinished](s); len(all) != 1 || all[0].LocalSteps != 5 ||
			all[0].StepCountReason != learner.StepCountReduced {
			t.Errorf("trained %+v, want 5 steps of 10", all)
		}
	})
}

// TestEndlessBlockRestsWithoutBudget checks that a block that mixes over the uplink pauses when the monthly traffic
// budget is spent, and continues in the next month.
func TestEndlessBlockRestsWithoutBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, steps := endlessScene(t)
		set := budgeted(s, 20_000_000)
		s.start()
		s.inviteToBlock(5, 4, 4)
		wait(3 * time.Minute)
		s.spend(30_000_000)
		wait(time.Minute)
		resting := steps.Load()
		wait(time.Hour)
		if n := steps.Load(); resting < 100 || n != resting {
			t.Errorf("%d local steps, and %d more without a budget", resting, n-resting)
		}
		set(october.AddDate(0, 0, 1))
		wait(2 * time.Hour)
		if n := steps.Load() - resting; n < 1000 {
			t.Errorf("%d local steps in the next month", n)
		}
	})
}

// TestEndlessBlockLeftBehind checks that the agent does not resume a saved block whose run is over, even if the block's
// file still exists.
func TestEndlessBlockLeftBehind(t *testing.T) {
	for name, end := range map[string]struct {
		run   wire.RunID
		phase wire.AnnouncementPhase
	}{"another run": {6, wire.PhaseIdle}, "the run's end": {5, wire.PhaseFinished}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := endlessScene(t)
				path := filepath.Join(s.cfg.StateDir, "block")
				s.start()
				s.inviteToBlock(5, 4, 4)
				wait(time.Minute)
				s.stop()
				block, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				s.start()
				wait(time.Minute)
				if b := eventsOf[training.EndlessBlockBegan](s); len(b) != 2 || b[1].Origin != training.BlockFromDisk {
					t.Fatalf("after a restart: %+v", b)
				}
				over := s.idle()
				over.Phase = end.phase
				s.announceIn(end.run, 9, over)
				wait(time.Minute)
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("the block is not removed: %v", err)
				}
				s.stop()
				if err := os.WriteFile(path, block, 0o600); err != nil {
					t.Fatal(err)
				}
				s.start()
				wait(time.Minute)
				if b := eventsOf[training.EndlessBlockBegan](s); len(b) != 2 {
					t.Errorf("a block of a run that is over goes on: %+v", b)
				}
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("it stays on disk: %v", err)
				}
			})
		})
	}
}

// TestEndlessBlockOfTheNextRun checks that a new run saves its own block, and that this block is not removed together
// with the block of the previous run.
func TestEndlessBlockOfTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := endlessScene(t)
		s.start()
		for run := wire.RunID(5); run < 25; run++ {
			s.inviteToBlock(run, 4, 4)
			wait(10 * time.Second)
			if _, err := os.Stat(filepath.Join(s.cfg.StateDir, "block")); err != nil {
				t.Errorf("run %d: %v", run, err)
			}
		}
	})
}

// TestEndlessBlockDiverges checks that the agent does not restart a block after its training has diverged, because the
// neighbours expect other steps from this process of the agent.
func TestEndlessBlockDiverges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := endlessScene(t)
		s.start()
		for r := wire.RoundID(4); r < 7; r++ {
			s.inviteToTask(5, r, 4, 1e30)
			wait(time.Hour)
		}
		if got := s.declined(); got != "diverged diverged diverged" {
			t.Errorf("declined: %q", got)
		}
		if b := eventsOf[training.EndlessBlockBegan](s); len(b) != 1 {
			t.Errorf("began: %+v", b)
		}
		if _, err := os.Stat(filepath.Join(s.cfg.StateDir, "block")); !os.IsNotExist(err) {
			t.Errorf("what diverged is kept for a restart: %v", err)
		}
		s.inviteToBlock(5, 7, 7)
		wait(30 * time.Minute)
		if b := eventsOf[training.EndlessBlockBegan](s); len(b) != 2 || b[1].Origin != training.BlockFromModel {
			t.Errorf("with other edges it began: %+v", b)
		}
		if n := len(s.heard(wire.TypeUpdate)); n == 0 {
			t.Error("no update")
		}
	})
}
