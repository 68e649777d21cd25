package coordinator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// within returns a context with a timeout for a command.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// endBetween stops the coordinator between two rounds and waits for its end.
func (f *federation) endBetween(now bool) {
	f.t.Helper()
	must(f.t, f.host.StopBetweenRounds(within(f.t, time.Minute), now))
	<-f.coord.life.done
	if err := f.coord.life.err; !errors.Is(err, coordinator.ErrStoppedBetweenRounds) {
		f.t.Fatalf("it has ended with %v", err)
	}
	f.coord.life.err = nil
}

// betweenRounds returns a federation that has trained two rounds under task 1, with its coordinator stopped between
// rounds.
func betweenRounds(t *testing.T) *federation {
	f := newFederation(t, 2, memory.Options{})
	f.cfg.Round.MaxAggregations, f.cfg.TaskVersion = 0, 1
	f.start()
	f.rounds(2)
	f.endBetween(false)
	return f
}

// rounds waits until n training rounds are closed.
func (f *federation) rounds(n int) {
	f.t.Helper()
	f.until(time.Hour, "rounds", func() bool { return len(events[aggregation.ModelReady](f)) >= n })
}

// TestAnotherTaskTakesOver checks that the run continues from its model under a new task. Either the open round is
// completed first, or it is abandoned at once and the journal records this.
func TestAnotherTaskTakesOver(t *testing.T) {
	for _, tt := range []struct {
		name string
		now  bool
	}{{"at the round's end", false}, {"at once", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Round.MaxAggregations, f.cfg.TaskVersion = 0, 1
				f.start()
				f.rounds(3)
				f.until(time.Hour, "an update", func() bool {
					r := events[round.UpdateAccepted](f)
					return r[len(r)-1].Round > events[aggregation.ModelReady](f)[2].Round
				})
				f.endBetween(tt.now)
				before := present(t, f)
				if tt.now != (before.LastOutcome.AbandonReason == round.AbandonByOperator) {
					t.Errorf("the round before ended as %+v", before.LastOutcome)
				}
				f.cfg.TaskVersion, f.cfg.Task.Training.BatchSize, f.cfg.Task.Training.MaxLocalSteps = 2, 1, 3
				f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.MaxAggregations = 2, 2,
					int(before.Plan.BaseModelVersion)+2
				f.cfg.Round.ServerOptimizer.Name = "fedadam" // the new optimiser starts from its initial state
				f.coord.start()
				f.finished(time.Hour)
				f.coord.stop()
				after := present(t, f)
				if after.Run != before.Run || after.Plan.BaseModelVersion != before.Plan.BaseModelVersion+2 {
					t.Errorf("run %d at model %d, then %d at %d", before.Run, before.Plan.BaseModelVersion, after.Run,
						after.Plan.BaseModelVersion)
				}
				if n := len(events[aggregation.StatisticsReady](f)); n != 1 {
					t.Errorf("%d statistics rounds", n)
				}
				var last []round.UpdateAccepted
				for _, u := range events[round.UpdateAccepted](f) {
					if u.Round == after.Round {
						last = append(last, u)
					}
				}
				if len(last) != 2 || last[0].Update.LocalSteps > 3 {
					t.Errorf("of the last round are %+v, want two updates by 3 steps at most", last)
				}
				was, _ := model(t, f, after.Run, uint64(before.Plan.BaseModelVersion))
				is, _ := model(t, f, after.Run, uint64(after.Plan.BaseModelVersion))
				if was.Metadata["mean"] != is.Metadata["mean"] {
					t.Errorf("columns %s, then %s", was.Metadata["mean"], is.Metadata["mean"])
				}
			})
		})
	}
}

// TestTakeOverKilled checks that if a change of the task was interrupted at any point, the next start completes it.
func TestTakeOverKilled(t *testing.T) {
	for cut := range 6 {
		synctest.Test(t, func(t *testing.T) {
			f := betweenRounds(t)
			before := present(t, f)
			whole := f.coord.dir
			f.coord.dir = f.coord.frozen()
			f.cfg.TaskVersion, f.cfg.Task.Training.BatchSize = 2, 1
			f.cfg.Round.MaxAggregations = int(before.Plan.BaseModelVersion) + 3
			run, err := f.coord.make(&life{}) // all files are written, but nothing is announced
			must(t, err)
			over, cancel := context.WithCancel(context.Background())
			cancel()
			must(t, run(over))
			// Restore the previous version of all files from index cut on.
			for i, name := range []string{"task.a", "task.b", "model.a", "model.b", "run.a", "run.b"} {
				if i >= cut {
					old, err := os.ReadFile(filepath.Join(whole, name))
					must(t, err)
					put(t, filepath.Join(f.coord.dir, name), old)
				}
			}
			f.coord.start()
			f.finished(time.Hour)
			if r := present(t, f); r.Run != before.Run || r.Plan.BaseModelVersion != before.Plan.BaseModelVersion+3 {
				t.Errorf("cut %d: run %d at model %d", cut, r.Run, r.Plan.BaseModelVersion)
			}
			f.stop()
		})
	}
}

// TestNewRunFromPresent checks that a new run can begin from the current model of the previous run, even if it is not
// archived.
func TestNewRunFromPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := betweenRounds(t)
		before := present(t, f)
		models, _, err := runs.OpenModelsOfCurrentRun(f.coord.dir)
		must(t, err)
		must(t, os.Remove(models.Path(uint64(before.Plan.BaseModelVersion))))
		f.cfg.TaskVersion, f.cfg.NewRun, f.cfg.StartModel = 2, true, coordinator.StartFromCurrentModel
		f.cfg.Task.Model.FrozenTensors, f.cfg.Round.MaxAggregations = []string{"layer0.weight"}, 1
		f.coord.start()
		f.finished(time.Hour)
		f.coord.stop()
		after := present(t, f)
		w0, _ := model(t, f, after.Run, 0)
		if after.Run <= before.Run || wire.Digest(w0.Digest) != before.Plan.BaseModel.Hash {
			t.Errorf("run %d begins with %x; run %d had %x", after.Run, w0.Digest[:4], before.Run,
				before.Plan.BaseModel.Hash[:4])
		}
		f.wantLoaded(coordinator.OperatorDecisions{Task: coordinator.AppliedTask{Version: 1},
			NextTask: &coordinator.AppliedTask{Version: 2, NewRun: true, StartModel: "present", AbandonsRound: true}},
			true)
		f.wantLoaded(coordinator.OperatorDecisions{Task: coordinator.AppliedTask{Version: 2},
			NextTask: &coordinator.AppliedTask{Version: 3, NewRun: true}}, false)
	})
}

// TestNewRunKilled kills the coordinator after it created the folder of a new run and before it saved the journal. The
// next start must begin the run with the same model of the previous run.
func TestNewRunKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := betweenRounds(t)
		before := present(t, f)
		named, _ := model(t, f, before.Run, 1)
		whole := f.coord.dir
		f.coord.dir = f.coord.frozen()
		f.cfg.TaskVersion, f.cfg.NewRun, f.cfg.StartModel, f.cfg.Round.MaxAggregations = 2, true, "1", 1
		run, err := f.coord.make(&life{}) // all files are written, but nothing is announced
		must(t, err)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		must(t, run(over))
		for _, name := range []string{"run.a", "run.b"} {
			old, err := os.ReadFile(filepath.Join(whole, name))
			must(t, err)
			put(t, filepath.Join(f.coord.dir, name), old)
		}
		f.coord.start()
		f.finished(time.Hour)
		f.coord.stop()
		after := present(t, f)
		if w0, _ := model(t, f, after.Run, 0); after.Run <= before.Run || w0.Digest != named.Digest {
			t.Errorf("run %d begins with %x; model 1 of run %d is %x", after.Run, w0.Digest[:4], before.Run,
				named.Digest[:4])
		}
	})
}

// wantLoaded saves the operator decisions and loads them again. If over is true, the journal already refers to the next
// task, which must then be the current task.
func (f *federation) wantLoaded(c coordinator.OperatorDecisions, over bool) {
	f.t.Helper()
	must(f.t, c.Save(f.coord.dir))
	got, found, err := coordinator.LoadOperatorDecisions(f.coord.dir)
	if over {
		c = coordinator.OperatorDecisions{Task: coordinator.AppliedTask{Version: c.NextTask.Version}}
	}
	if err != nil || !found || !reflect.DeepEqual(got, c) {
		f.t.Errorf("loaded is %+v, %v; want %+v", got, err, c)
	}
}

// TestControlLost checks that without the file of operator decisions the task version in the journal is used, and that
// a damaged file requires a decision by the operator.
func TestControlLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := betweenRounds(t)
		f.cfg.TaskVersion = 7
		f.coord.start()
		f.rounds(3)
		f.coord.stop()
		c, found, err := coordinator.LoadOperatorDecisions(f.coord.dir)
		if err != nil || found || c.Task.Version != 7 {
			t.Errorf("without a file: %+v, %v, %v", c, found, err)
		}
		must(t, c.Save(f.coord.dir))
		for _, name := range []string{"control.a", "control.b"} {
			put(t, filepath.Join(f.coord.dir, name), []byte("damaged, and too short"))
		}
		var state *runs.StateError
		if _, _, err := coordinator.LoadOperatorDecisions(f.coord.dir); !errors.As(err, &state) {
			t.Errorf("damaged: %v", err)
		}
	})
}

// TestSteer checks that a paused run waits, even across a restart, and continues on command. A run that is stopped by
// command ends.
func TestSteer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.Round.MaxAggregations = 0
		f.start()
		f.rounds(2)
		must(t, f.host.SetOperatorCommand(within(t, time.Minute), round.CommandPause, false))
		f.until(time.Hour, "a pause", func() bool { return phase(f) == round.CoordinatorPaused })
		n := len(events[aggregation.ModelReady](f))
		wait(time.Hour)
		f.coord.stop()
		f.cfg.Round.OperatorCommand = round.CommandPause
		f.coord.start()
		wait(time.Hour)
		if got := len(events[aggregation.ModelReady](f)); got != n {
			t.Errorf("%d rounds in the pause", got-n)
		}
		must(t, f.host.SetOperatorCommand(within(t, time.Minute), round.CommandContinue, false))
		f.rounds(n + 2)
		must(t, f.host.SetOperatorCommand(within(t, time.Minute), round.CommandStop, false))
		f.finished(time.Hour)
	})
}

func phase(f *federation) round.CoordinatorPhase {
	all := events[round.PhaseEntered](f)
	return all[len(all)-1].Phase
}
