package agent_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestDeclines checks that an agent declines a round that it cannot perform once, and gives the reason.
func TestDeclines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *scene, a *wire.Announcement)
		base   []float32
		want   string
	}{
		{"a schema that is not the task's", func(_ *scene, a *wire.Announcement) { a.UpdateSchema[0]++ }, []float32{0,
			0},
			"unsupported"},
		{"a model of another size", nil, []float32{0, 0, 0}, "fetch"},
		{"a model over the limit", func(s *scene, _ *wire.Announcement) { s.cfg.MaxBlobBytes = 500 }, make([]float32,
			200),
			"fetch"},
		{"a task that makes no sense", func(_ *scene, a *wire.Announcement) {
			bad := taskOf("bad")
			bad.Training.MinLocalSteps = 0
			a.Task = inline(bad.AppendEncoding(nil))
		}, []float32{0, 0}, "unsupported"},
		{"a task that is none", func(_ *scene, a *wire.Announcement) { a.Task = inline([]byte("?")) }, []float32{0, 0},
			"unsupported"},
		{"steps that diverge", func(_ *scene, a *wire.Announcement) {
			wild := taskOf("wild")
			wild.Training.StepSize = 1e30
			a.Task = inline(wild.AppendEncoding(nil))
		}, []float32{1, 1}, "diverged"},
		{"data that cannot be read", func(s *scene, _ *wire.Announcement) {
			s.cfg.TaskData.Source = data.MemorySource(func([]string, string) (*learner.Samples[float32], error) {
				return nil, os.ErrNotExist
			})
		}, []float32{0, 0}, "bad_data"},
		{"few rows", func(s *scene, _ *wire.Announcement) { s.cfg.TaskData.MinRows = 6 }, []float32{0, 0},
			"too_few_rows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				ann := s.training(taskOf("a task"), tt.base...)
				if tt.change != nil {
					tt.change(s, &ann)
				}
				s.start()
				s.invite(4, s.announce(4, ann))
				wait(20 * time.Second)
				if got := s.declined(); got != tt.want {
					t.Errorf("declined: %q, want %q", got, tt.want)
				}
				if n := len(s.heard(wire.TypeUpdate)); n > 0 {
					t.Errorf("%d updates were offered", n)
				}
			})
		})
	}
}

// TestModelOverTheLimit checks that the log contains the configuration key of the size limit if a model exceeds that
// limit.
func TestModelOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var log bytes.Buffer
		s.cfg.MaxBlobBytes, s.cfg.Logger = 500, slog.New(slog.NewTextHandler(&log, nil))
		ann := s.training(taskOf("a task"), make([]float32, 200)...)
		s.start()
		s.invite(4, s.announce(4, ann))
		wait(20 * time.Second)
		s.stop()
		if text := log.String(); !strings.Contains(text, "announced length of 800 bytes exceeds the limit of 500: "+
			"raise limits.max_model in") {
			t.Errorf("the log says\n%s", text)
		}
	})
}

// TestDataMended checks that the agent reads data again if they do not fit the task, and that it does not report
// unchanged data each time.
func TestDataMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		loads := 0
		s.cfg.TaskData.Source = data.MemorySource(func(f []string, target string) (*learner.Samples[float32], error) {
			if loads++; loads < 4 {
				return nil, os.ErrNotExist
			}
			return fiveRows(f, target)
		})
		s.start()
		gathering := s.training(taskOf("a task"), 0, 0)
		gathering.Phase = wire.PhaseGathering
		s.announce(4, gathering)
		wait(25 * time.Minute)
		if got := eventsOf[taskdata.RowsLoaded](s); loads != 3 || len(got) != 1 || got[0].Problem == nil ||
			s.unfit() != "bad_data" {
			t.Errorf("%d loads in 25 minutes; %+v; it is %s", loads, got, s.unfit())
		}
		wait(10 * time.Minute)
		if got := eventsOf[taskdata.RowsLoaded](s); len(got) != 2 || got[1].Rows != 5 || s.unfit() != "fit" {
			t.Errorf("with mended data: %+v; it is %s", got, s.unfit())
		}
		s.invite(5, s.announce(5, s.training(taskOf("a task"), 0, 0)))
		wait(time.Hour)
		if e, _ := s.update(); e.Round != 5 || loads != 4 {
			t.Errorf("an update of round %d; %d loads", e.Round, loads)
		}
	})
}

// TestSuperseded checks an agent whose round ends during its training: the agent must start the next round at once, and
// must send nothing for the round that has ended.
func TestSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.invite(4, s.announce(4, s.training(taskOf("a task"), 0, 0)))
		wait(time.Second) // after one of the three seconds of training
		began := time.Now()
		s.invite(5, s.announce(5, s.training(taskOf("a task"), 1, 1)))
		wait(3*time.Second + time.Millisecond)
		e, u := s.update()
		if e.Round != 5 || u.LocalSteps != 3 || len(s.heard(wire.TypeUpdate)) != 1 {
			t.Errorf("%d updates, the last of round %d with %d steps", len(s.heard(wire.TypeUpdate)), e.Round,
				u.LocalSteps)
		}
		if got := eventsOf[training.LocalTrainingFinished](s); len(got) != 1 || got[0].Round != 5 ||
			got[0].LocalStepsDuration != 3*time.Second {
			t.Errorf("trained: %+v in %v", got, time.Since(began))
		}
		if ends := eventsOf[agentround.WorkEnded](s); len(ends) != 1 || ends[0].Result != agentround.WorkSuperseded {
			t.Errorf("ended: %+v", ends)
		}
		s.announce(6, s.idle())
		if _, err := os.Stat(filepath.Join(s.cfg.StateDir, "update")); !os.IsNotExist(err) {
			t.Errorf("the update of a round that is over is still there: %v", err)
		}
	})
}

// TestStoppedWhileTraining checks that an agent that is stopped during training sends only its offline presence and
// saves no partial update. After a restart it must repeat the whole training.
func TestStoppedWhileTraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		ann := s.sign(s.header(wire.TypeAnnouncement, 4),
			func() []byte { a := s.training(taskOf("a task"), 0, 0); return a.Body() }())
		e, err := wire.ParseEnvelope(ann)
		if err != nil {
			t.Fatal(err)
		}
		s.send(s.topics.Announcement(), ann)
		s.invite(4, e.Digest())
		wait(time.Second)
		s.stop()
		if d := s.declined(); d != "" || len(s.heard(wire.TypeUpdate)) > 0 {
			t.Errorf("declined %q, %d updates", d, len(s.heard(wire.TypeUpdate)))
		}
		if _, err := os.Stat(filepath.Join(s.cfg.StateDir, "update")); !os.IsNotExist(err) {
			t.Errorf("there is an update: %v", err)
		}
		s.start()
		s.send(s.topics.Announcement(), ann)
		s.invite(4, e.Digest())
		wait(5 * time.Second)
		if _, u := s.update(); u.LocalSteps != 3 {
			t.Errorf("%d local steps", u.LocalSteps)
		}
		s.stop()
		n := len(s.heard(wire.TypeUpdate))
		s.start() // Start the agent while its update is stored on disk.
		s.send(s.topics.Announcement(), ann)
		wait(time.Second)
		if len(s.heard(wire.TypeUpdate)) <= n || len(eventsOf[training.LocalTrainingFinished](s)) != 1 {
			t.Errorf("%d updates were offered after %d, trained %d times", len(s.heard(wire.TypeUpdate)), n,
				len(eventsOf[training.LocalTrainingFinished](s)))
		}
		s.send(s.topics.Announcement(), s.sign(s.header(wire.TypeAnnouncement, 3),
			func() []byte { a := s.training(taskOf("a task"), 0, 0); return a.Body() }()))
		got := eventsOf[agentround.AnnouncementIgnored](s)
		if len(got) != 1 || got[0].Reason != agentround.IgnoredOlderAnnouncement {
			t.Errorf("an older announcement after the restart: %+v", got)
		}
	})
}

// TestTaskOvertaken checks that a new task replaces the previous task if the new task arrives while the agent reads the
// data for the previous task.
func TestTaskOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		gate := make(chan struct{})
		loads := 0
		s.cfg.TaskData.Source = data.MemorySource(func(f []string, target string) (*learner.Samples[float32], error) {
			if loads++; loads == 1 {
				<-gate
			}
			return fiveRows(f, target)
		})
		s.start()
		s.announce(4, s.training(taskOf("first"), 0, 0))
		s.invite(5, s.announce(5, s.training(taskOf("second"), 0, 0)))
		close(gate)
		wait(10 * time.Second)
		if got := eventsOf[taskdata.RowsLoaded](s); loads != 2 || len(got) != 1 || got[0].Task != "second" {
			t.Errorf("%d loads; %+v", loads, got)
		}
		if e, _ := s.update(); e.Round != 5 {
			t.Errorf("round %d", e.Round)
		}
	})
}

// TestDeclaredStepTime checks that a declared time per local step determines the number of local steps, but does not
// slow them down.
func TestDeclaredStepTime(t *testing.T) {
	for name, mixing := range map[string]wire.MixingSettings{
		"a round": {}, "a block": {IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 1000,
			SnapshotCodec: spec.CodecRaw},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.Training.Trainer = training.LocalTrainer{}
				s.start()
				task := taskOf("a task")
				task.Mixing, task.Training.NormalizesStepSize = mixing, mixing.IntervalSteps == 0
				s.invite(4, s.announce(4, s.training(task, 0, 0)))
				wait(30 * time.Second)
				got := eventsOf[training.LocalTrainingFinished](s)
				if len(got) != 1 || got[0].LocalSteps != 3 || got[0].StepTime != time.Second ||
					got[0].LocalStepsDuration != 0 {
					t.Errorf("trained %+v; want 3 steps, as many as are declared to fit into 3 s, that take as long "+
						"as they take", got)
				}
			})
		})
	}
}
