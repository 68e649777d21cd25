package coordinator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// obstruct makes all writes to path fail, as on a full disk, until mend is called.
func obstruct(t *testing.T, path string) (mend func()) {
	t.Helper()
	aside := path + ".aside"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	had := os.Rename(path, aside) == nil
	if filepath.Ext(path) == "" && had && isDir(aside) {
		must(os.WriteFile(path, nil, 0o600)) // a file in place of a folder makes every write fail
	} else {
		must(os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	}
	return func() {
		must(os.RemoveAll(path))
		if had {
			must(os.Rename(aside, path))
		}
	}
}

// obstructSlots obstructs both slots of a file.
func obstructSlots(t *testing.T, path string) (mend func()) {
	t.Helper()
	a, b := obstruct(t, path+".a"), obstruct(t, path+".b")
	return func() {
		a()
		b()
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// TestDiskFull checks that a coordinator whose disk is full waits for space, and that it sends no message before the
// preceding write is on disk.
func TestDiskFull(t *testing.T) {
	closing := func(kind wire.RoundKind) func(any) bool {
		n := map[wire.RoundKind]int{wire.KindStatistics: 3, wire.KindTraining: 6}[kind]
		return func(x any) bool {
			if a, ok := x.(round.UpdateAccepted); ok && a.Update.Kind == kind {
				n--
				return n == 0
			}
			return false
		}
	}
	opening := func(x any) bool { o, ok := x.(round.PhaseEntered); return ok && o.Phase == round.CoordinatorCollecting }
	for _, tt := range []struct {
		name  string
		file  []string
		at    func(any) bool
		stays func(f *federation) int // returns a count that must not grow while the disk is full
	}{
		{"journal", []string{"run"}, closing(wire.KindTraining),
			func(f *federation) int { return len(events[round.RoundOpened](f)) }},
		{"task", []string{"task"}, closing(wire.KindStatistics),
			func(f *federation) int { return len(events[aggregation.StatisticsReady](f)) }},
		{"model", []string{"model"}, closing(wire.KindTraining),
			func(f *federation) int { return len(events[aggregation.ModelReady](f)) }},
		{"archive", []string{"models", "946684800000"}, closing(wire.KindTraining),
			func(f *federation) int { return len(events[round.RoundOpened](f)) }},
		{"spool", []string{"spool"}, opening,
			func(f *federation) int { return len(events[agentround.WorkStarted](f)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Round.MaxAggregations = 3
				p := f.coord
				mend := make(chan func(), 1)
				p.moment = func(m any) {
					if tt.at(m) {
						if path := p.path(tt.file...); isDir(path) {
							mend <- obstruct(t, path)
						} else {
							mend <- obstructSlots(t, path)
						}
						p.moment = nil
					}
				}
				f.start()
				undo := <-mend
				wait(5 * time.Minute) // a failing archive blocks the round after the next
				before := tt.stays(f)
				wait(21 * time.Second)
				if after := tt.stays(f); after != before {
					t.Errorf("something went on with a full disk: %d, then %d", before, after)
				}
				undo()
				f.finished(time.Hour)
				f.checkOnce(tt.name)
			})
		})
	}
}

// TestStoppedWithFullDisk checks that no accepted update is lost if the coordinator is stopped while the disk is full.
func TestStoppedWithFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations = 2
		full := make(chan func(), 1)
		f.coord.moment = func(m any) {
			if c, ok := m.(round.RoundClosed); ok && c.Round == 2 {
				full <- obstructSlots(t, f.coord.path("run"))
			}
		}
		f.start()
		undo := <-full
		wait(12 * time.Second)
		f.coord.stop()
		undo()
		if entries, err := os.ReadDir(f.coord.path("spool")); err != nil || len(entries) != 1 {
			t.Errorf("%v; the spool of the round that the journal knows: %v", err, entries)
		}
		f.coord.moment = nil
		f.coord.start()
		f.finished(time.Hour)
		for _, a := range f.agents {
			if n := len(events[training.LocalTrainingFinished](f, a.id)); n != 2 {
				t.Errorf("%s trained %d times for 2 rounds", a.id, n)
			}
		}
		if gone := events[round.RoundAbandoned](f); len(gone) > 0 {
			t.Errorf("abandoned: %+v", gone)
		}
	})
}

// TestDoesNotStart checks that a coordinator with a full disk, or with a folder that does not fit the configuration,
// returns an error.
func TestDoesNotStart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(t *testing.T, f *federation)
		says   string
	}{
		{"full disk", func(t *testing.T, f *federation) { obstructSlots(t, f.coord.path("task")) }, "task"},
		{"another task", func(_ *testing.T, f *federation) { f.cfg.Task.Training.BatchSize++ },
			"differs from the task of the run"},
		{"no key", func(_ *testing.T, f *federation) { f.cfg.Key = nil }, "key has 0 bytes"},
		{"data that do not fit", func(_ *testing.T, f *federation) { f.held("a,b\n1,2\n") },
			"held-out data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 2, memory.Options{})
				if tt.name != "full disk" {
					f.cfg.Round.MaxAggregations = 1
					f.start()
					f.finished(time.Hour)
					f.coord.stop()
				}
				tt.breaks(t, f)
				cfg := f.cfg
				cfg.StateDir, cfg.Observer = f.coord.dir, observer(func(observe.Event) {})
				conn := f.broker.Connect("late", nil)
				defer conn.Close()
				if _, err := coordinator.New(cfg, conn); err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want an error with %q", err, tt.says)
				}
			})
		})
	}
}

// TestNewRun checks that an unfinished run continues, and that NewRun replaces it with a new run.
func TestNewRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.Round.MaxAggregations = 1
		f.start()
		f.finished(time.Hour)
		f.coord.stop()
		_, first, err := runs.OpenModelsOfCurrentRun(f.coord.dir)
		if err != nil {
			t.Fatal(err)
		}
		f.cfg.NewRun, f.cfg.Task.Training.BatchSize = true, 5
		f.coord.start()
		f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
		_, second, err := runs.OpenModelsOfCurrentRun(f.coord.dir)
		if err != nil || second.Run <= first.Run || second.Phase != round.CoordinatorFinished {
			t.Errorf("%v; run %d in phase %s after run %d", err, second.Run, second.Phase, first.Run)
		}
	})
}

// TestOldSpoolsGo checks that spools (folders with received updates) of finished rounds are removed after a crash, and
// that the spool of the current round is kept.
func TestOldSpoolsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.PauseBetweenRounds = 1, time.Hour
		for _, a := range f.agents {
			a.cfg.Training.DeclaredStepTime = 10 * time.Second
		}
		f.start()
		leave := func(name string) {
			if err := os.MkdirAll(f.coord.path("spool", name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		want := func(name string) {
			t.Helper()
			entries, err := os.ReadDir(f.coord.path("spool"))
			if err != nil || name == "" && len(entries) > 0 || name != "" &&
				(len(entries) != 1 || entries[0].Name() != name) {
				t.Errorf("%v; spools %v, want %q", err, entries, name)
			}
		}
		f.until(time.Minute, "collecting", func() bool { return len(events[round.RoundOpened](f)) > 0 })
		f.coord.stop()
		leave("7")
		f.coord.start()
		f.until(time.Minute, "the spool of the open round", func() bool {
			_, err := os.Stat(f.coord.path("spool", "1"))
			return err == nil
		})
		want("1")
		f.until(time.Minute, "pausing", func() bool { return len(events[round.RoundClosed](f)) == 1 })
		synctest.Wait()
		f.coord.stop()
		leave("1") // left behind by a crash between writing the journal and removing the spool
		f.coord.start()
		want("")
	})
}
