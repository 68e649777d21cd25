package agent_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fileOf returns a reference to a model of the task with the parameters w, and the model's file.
func fileOf(t *testing.T, version wire.ModelVersion, w ...float32) (wire.ModelRef, wire.BlobRef) {
	t.Helper()
	of := taskOf("a task")
	p, err := task.Compile[float32](of)
	if err != nil {
		t.Fatal(err)
	}
	vector := wire.AppendVector(nil, w)
	m := modelfile.NewModel(&of, p.Model.Architecture(), vector, wire.BlobDigest(vector))
	m.Run, m.Version = 5, version
	file, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return m.ModelRef(), inline(file)
}

// rolls announces a staged release of a model and waits until the agent has followed the announcement.
func (s *scene) rolls(r wire.RoundID, change func(*wire.Announcement)) {
	a := s.training(taskOf("a task"), 0, 0)
	change(&a)
	s.announce(r, a)
	wait(10 * time.Minute)
}

// says returns the residuals of the candidate model that the newest hello message contains.
func (s *scene) says() wire.CandidateResiduals {
	s.t.Helper()
	all := s.heard(wire.TypeHello)
	h, err := wire.DecodeHello(all[len(all)-1].Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return h.Residuals
}

// TestRollout checks which model an agent uses: the released model, or the candidate if the agent belongs to the trial
// and the candidate is no worse on the agent's own rows. When the candidate is withdrawn, the agent must return to the
// released model, whatever its rows.
func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(c *agent.Config) {
			c.Predict.MaxKeptModels, c.Predict.MinModelChangeInterval = 1,
				24*time.Hour
		})
		expect := func(what, inUse string, says wire.CandidateResiduals) {
			t.Helper()
			if got := s.inUse(); got != inUse {
				t.Errorf("%s: %s in use, want %s; judged: %s", what, got, inUse, s.judged())
			}
			if got := s.says(); got != says {
				t.Errorf("%s: the hello says %+v, want %+v", what, got, says)
			}
		}
		first, firstFile := fileOf(t, 1, 2, -1.5)
		second, secondFile := fileOf(t, 2, 2, -1.2)
		third, thirdFile := fileOf(t, 3, 2, -4)
		none := wire.CandidateResiduals{}
		with := func(c wire.ModelRef, file wire.BlobRef, share float64) func(*wire.Announcement) {
			return func(a *wire.Announcement) {
				a.Rollout = wire.Rollout{ReleasedModel: first, CandidateModel: c, CandidateAgentShare: share}
				a.ReleasedModelFile, a.CandidateModelFile = firstFile, file
			}
		}
		s.rolls(1, with(wire.ModelRef{}, wire.BlobRef{}, 0))
		expect("released", "5/1", none)
		s.rolls(2, with(second, secondFile, 1e-6))
		expect("a candidate for others", "5/1", none)
		s.rolls(3, with(second, secondFile, 1))
		expect("a candidate", "5/2", none) // Without published forecasts, the agent reads no labels.
		s.stop()
		s.start()
		s.send(s.topics.Announcement(), s.announced)
		wait(10 * time.Minute)
		expect("after a restart", "5/2", none)
		s.rolls(4, func(a *wire.Announcement) { // The model file is no longer available.
			with(wire.ModelRef{}, wire.BlobRef{}, 0)(a)
			a.ReleasedModelFile = wire.BlobRef{Hash: wire.Digest{1}, ManifestHash: wire.Digest{2}, Length: 1000}
		})
		expect("withdrawn", "5/1", none)
		s.rolls(5, with(third, thirdFile, 1))
		expect("refused", "5/1", wire.CandidateResiduals{Run: 5, ModelVersion: 3, CandidateRefused: true})
		s.rolls(6, func(a *wire.Announcement) {
			a.Rollout, a.ReleasedModelFile = wire.Rollout{ReleasedModel: second}, secondFile
		})
		expect("widened", "5/2", none)
		if got := s.judged(); got != "taken taken taken worse taken" {
			t.Error(got)
		}
		s.rolls(7, func(a *wire.Announcement) {
			a.BaseModel, a.BaseModelVersion = inline(wire.AppendVector(nil, []float32{2, -1})), 9
		})
		expect("without a rollout", "5/9", none)
	})
}

// TestRolloutFails checks that the agent does not use an unreadable model file or the file of another model, and
// fetches the file again.
func TestRolloutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(*agent.Config) {})
		name, file := fileOf(t, 1, 2, -1.5)
		_, other := fileOf(t, 2, 2, -1)
		for r, wrong := range []wire.BlobRef{other, inline([]byte("no file"))} {
			s.rolls(wire.RoundID(1+r), func(a *wire.Announcement) {
				a.Rollout, a.ReleasedModelFile = wire.Rollout{ReleasedModel: name}, wrong
			})
			if s.inUse() != "none" || !strings.HasPrefix(s.judged(), "failed") {
				t.Errorf("%s in use; judged: %s", s.inUse(), s.judged())
			}
		}
		s.rolls(3, func(a *wire.Announcement) {
			a.Rollout, a.ReleasedModelFile = wire.Rollout{ReleasedModel: name},
				file
		})
		if s.inUse() != "5/1" {
			t.Errorf("%s in use; judged: %s", s.inUse(), s.judged())
		}
	})
}

// TestRolloutBesideDamage checks that the agent fetches a new model even if the model file on its disk is damaged.
func TestRolloutBesideDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(c *agent.Config) { c.Predict.MaxKeptModels = 3 })
		for v, weight := range []float32{-1.5, -1.2} {
			name, file := fileOf(t, wire.ModelVersion(1+v), 2, weight)
			s.rolls(wire.RoundID(1+v), func(a *wire.Announcement) {
				a.Rollout, a.ReleasedModelFile = wire.Rollout{ReleasedModel: name}, file
			})
			kept, err := filepath.Glob(filepath.Join(s.cfg.StateDir, "models", "*.safetensors"))
			if err != nil || len(kept) != 1+v || s.inUse() != fmt.Sprint("5/", 1+v) {
				t.Fatalf("%v are kept, %s is in use, %v", kept, s.inUse(), err)
			}
			if err := os.WriteFile(kept[0], []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestResiduals checks that the agent compares the candidate and the released model on labels that arrive while the
// candidate is in use, and reports the result in its hello message. After a restart the comparison must begin again.
func TestResiduals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head := "t,a,b,y\n"
		l := forecasting(t, head+history(0, 100), func(predict.Forecast) error { return nil }, 2, -1)
		k, err := modelfile.OpenKeptModels(store.LocalDisk, l.cfg.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := k.ActiveModel()
		if err != nil {
			t.Fatal(err)
		}
		second, secondFile := fileOf(t, 8, 2, 0)
		file, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		l.rolls(1, func(a *wire.Announcement) {
			a.Rollout = wire.Rollout{ReleasedModel: m.ModelRef(), CandidateModel: second, CandidateAgentShare: 1}
			a.ReleasedModelFile, a.CandidateModelFile = inline(file), secondFile
		})
		empty := wire.CandidateResiduals{Run: 5, ModelVersion: 8}
		if l.inUse() != "5/8" || l.says() != empty {
			t.Fatalf("%s in use, %+v", l.inUse(), l.says())
		}
		l.write(head + history(0, 100) + "370800,1,1,9\n374400,0,2,1\n")
		wait(10 * time.Minute)
		want := empty // The predictions are 2a and 2a−b; the labels are 9 and 1.
		want.LabeledRows, want.CandidateMeanSquare, want.ReleasedMeanSquare = 2, (7*7+1)/2., (8*8+3*3)/2.
		if got := l.says(); got.LabeledRows != 2 || math.Abs(got.CandidateMeanSquare-want.CandidateMeanSquare) > 1e-9 ||
			math.Abs(got.ReleasedMeanSquare-want.ReleasedMeanSquare) > 1e-9 {
			t.Errorf("%+v, want %+v", got, want)
		}
		l.stop()
		l.start()
		l.send(l.topics.Announcement(), l.announced)
		wait(10 * time.Minute)
		if l.inUse() != "5/8" || l.says() != empty {
			t.Errorf("%s in use, %+v", l.inUse(), l.says())
		}
		l.write(head + history(0, 100) + "370800,1,1,9\n374400,0,2,1\n378000,0,1,2\n")
		wait(10 * time.Minute)
		if got := l.says(); got.LabeledRows != 1 || got.CandidateMeanSquare != 4 || got.ReleasedMeanSquare != 9 {
			t.Errorf("%+v", got)
		}
	})
}
