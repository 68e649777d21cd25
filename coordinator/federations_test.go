package coordinator_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// steady is a trainer whose local steps all take the same time. It fails the test if another federation on the device
// trains at the same time.
type steady struct {
	training.Trainer
	t       *testing.T
	each    time.Duration
	busy    *atomic.Bool  // true while a federation trains; shared by the federations of a device
	trained *atomic.Int64 // training time in nanoseconds
}

func (s steady) step(ctx context.Context) {
	if s.busy.Swap(true) {
		s.t.Error("two federations train at the same time")
	}
	select {
	case <-time.After(s.each):
	case <-ctx.Done():
	}
	s.busy.Store(false)
	s.trained.Add(int64(s.each))
}

// NewBlock implements training.Trainer.
func (s steady) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	between, begun := j.ShouldStop, false
	j.ShouldStop = func() bool {
		if begun {
			s.step(ctx)
		}
		begun = true
		return between()
	}
	b, err := s.Trainer.NewBlock(ctx, r, p, j)
	return steadyBlock{b, s, ctx}, err
}

type steadyBlock struct {
	training.LocalStepBlock
	s   steady
	ctx context.Context
}

// TakeSteps implements training.LocalStepBlock.
func (b steadyBlock) TakeSteps(x []float32, first, last uint64) error {
	err := b.LocalStepBlock.TakeSteps(x, first, last)
	b.s.step(b.ctx) // the last step has no callback of its own
	return err
}

// onOneDevice returns two federations that share one agent device. A training block of the first federation takes ten
// times as long as a block of the second.
func onOneDevice(t *testing.T) (large, small *federation, trained [2]*atomic.Int64) {
	turn, busy := new(training.TrainingLock), new(atomic.Bool)
	var both [2]*federation
	for i, name := range []string{"large", "small"} {
		f := newFederation(t, 1, memory.Options{})
		trained[i] = new(atomic.Int64)
		a, settings := f.agents[0], &f.cfg.Task.Training
		a.cfg.Training.LockShare, a.cfg.Training.DeclaredStepTime = turn.NewShare(name), 100*time.Millisecond
		a.cfg.Training.Trainer = steady{training.LocalTrainer{}, t, a.cfg.Training.DeclaredStepTime, busy, trained[i]}
		settings.MinLocalSteps, settings.MaxLocalSteps, settings.StepTimeBudgetMillis = 300, 300, 30_000
		if i == 1 {
			settings.MinLocalSteps, settings.MaxLocalSteps, settings.StepTimeBudgetMillis = 30, 30, 3_000
		}
		both[i] = f
	}
	large, small = both[0], both[1]
	large.cfg.Round.MaxAggregations, small.cfg.Round.MaxAggregations = 10, 40
	return large, small, trained
}

// TestTwoFederations checks that two federations that share a device yield the same models as in separate runs. The
// federation with short blocks gets half of the training time. In total it waits no longer than it trains, and it never
// waits longer than one time slice and one local step.
func TestTwoFederations(t *testing.T) {
	var alone [2]wire.Digest
	for i := range alone {
		synctest.Test(t, func(t *testing.T) {
			large, small, _ := onOneDevice(t)
			f := []*federation{large, small}[i]
			f.start()
			alone[i] = f.finished(time.Hour)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		large, small, trained := onOneDevice(t)
		large.start()
		small.start()
		if got := small.finished(time.Hour); got != alone[1] {
			t.Errorf("the small run has model %x, alone it has %x", got[:4], alone[1][:4])
		}
		own, other, waited := time.Duration(trained[1].Load()), time.Duration(trained[0].Load()), time.Duration(0)
		for _, f := range events[training.LocalTrainingFinished](small) {
			waited += f.LockWait
		}
		if own != 40*3*time.Second || waited > own+2*time.Second || waited < own/2 || other < waited {
			t.Errorf("the small run trained %v and waited %v, while the large one trained %v", own, waited, other)
		}
		told := events[training.LockAwaited](small)
		for i, f := range told {
			if i%2 == 0 && f.HolderFederation != "large" || i%2 == 1 && (f.HolderFederation != "" ||
				f.Waited > 1100*time.Millisecond) {
				t.Errorf("told %+v", f)
			}
		}
		if len(told) < 40 {
			t.Errorf("told of %d waits", len(told)/2)
		}
		if got := large.finished(time.Hour); got != alone[0] {
			t.Errorf("the large run has model %x, alone it has %x", got[:4], alone[0][:4])
		}
		for _, f := range events[training.LocalTrainingFinished](large) {
			// the duration must exclude the waiting time
			if f.LocalSteps != 300 || f.LocalStepsDuration != 30*time.Second {
				t.Errorf("trained %+v", f)
			}
		}
	})
}

// TestOneOfTwoKilled checks that a coordinator which is killed and returns after an hour does not affect the device's
// other federation.
func TestOneOfTwoKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, small, _ := onOneDevice(t)
		large.start()
		small.start()
		small.until(time.Hour, "in its fifth round",
			func() bool { return len(events[training.LocalTrainingFinished](small)) == 5 })
		small.coord.kill()
		large.finished(time.Hour)
		wait(time.Hour)
		small.coord.again()
		small.finished(2 * time.Hour)
	})
}

// TestOneOfTwoDeclines checks that if the device's data do not fit the task of one federation, the other federation is
// not affected.
func TestOneOfTwoDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, small, _ := onOneDevice(t)
		small.agents[0].data = "warm,wet,wind\n1,2,3\n"
		large.start()
		small.start()
		large.finished(time.Hour)
		unfit := func(f *federation) bool {
			return slices.ContainsFunc(events[agentround.TaskFitnessChecked](f),
				func(p agentround.TaskFitnessChecked) bool { return p.UnfitReason == wire.DeclineBadData })
		}
		waits := events[training.LockAwaited](large)
		if !unfit(small) || unfit(large) || len(events[training.LocalTrainingFinished](small)) > 0 || len(waits) > 0 {
			t.Errorf("unfit: %v and %v; %+v", unfit(small), unfit(large), waits)
		}
	})
}

// TestTurnTooLate checks that an agent declines a round whose deadline passes while the device is busy with a long step
// for another federation. The agent must report the waiting time and the reason.
func TestTurnTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, small, _ := onOneDevice(t)
		a := large.agents[0]
		s := a.cfg.Training.Trainer.(steady)
		s.each, a.cfg.Training.DeclaredStepTime = 30*time.Minute, 30*time.Minute
		a.cfg.Training.Trainer = s
		large.cfg.Task.Training.MinLocalSteps, large.cfg.Task.Training.MaxLocalSteps = 1, 1
		large.cfg.Round.MaxAggregations, large.cfg.Round.RoundTimeout = 1, time.Hour
		small.cfg.Round.RoundTimeout, small.cfg.Round.MaxAggregations, small.cfg.Standardize = 10*time.Minute, 3, false
		small.cfg.Task.Training.StepSize = 1e-6 // small, because the columns are not standardised
		large.start()
		wait(time.Minute) // wait until the other federation trains
		small.start()
		small.until(time.Hour, "declined", func() bool { return len(events[agentround.WorkEnded](small)) > 0 })
		told, failed := events[training.LockAwaited](small), events[training.LocalTrainingFailed](small)
		if len(told) < 2 || told[0].HolderFederation != "large" || told[1].Waited != 9*time.Minute ||
			len(failed) == 0 ||
			failed[0].Err.Error() != "the device is training for another federation: training was stopped before the "+
				"first local "+
				"step" {
			t.Errorf("told %+v and %+v", told, failed)
		}
		if f := events[agentround.WorkEnded](small)[0]; f.Result != agentround.WorkDeclined ||
			f.DeclineReason != wire.DeclineNoTime {
			t.Errorf("ended with %+v", f)
		}
		large.finished(2 * time.Hour)
		small.finished(2 * time.Hour)
	})
}
