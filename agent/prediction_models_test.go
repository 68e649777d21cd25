package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// keeps returns a test scene whose agent stores two models and holds out the last two of five rows with y = 2a − b.
func keeps(t *testing.T, change func(*agent.Config)) *scene {
	s := newScene(t)
	s.cfg.TaskData.HeldOutShare = 0.4
	s.cfg.Predict = &predict.Config{MaxKeptModels: 2, MinModelChangeInterval: 10 * time.Minute, MaxRiskIncrease: 0.5}
	change(&s.cfg)
	s.start()
	return s
}

// offers announces a version of a model with the parameters w, without selecting participants, and waits until the
// agent could have adopted the model.
func (s *scene) offers(r wire.RoundID, version wire.ModelVersion, w ...float32) {
	a := s.training(taskOf("a task"), w...)
	a.BaseModelVersion = version
	s.announce(r, a)
	wait(11 * time.Minute)
}

// inUse returns the model in use, in the form RUN/VERSION.
func (s *scene) inUse() string {
	s.t.Helper()
	k, err := modelfile.OpenKeptModels(store.LocalDisk, s.cfg.StateDir)
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := k.ActiveModel()
	if errors.Is(err, store.ErrNoModel) {
		return "none"
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return m.DisplayName()
}

// judged returns the results with which the agent has judged new models.
func (s *scene) judged() string {
	var all []string
	for _, f := range eventsOf[predict.ModelJudged](s) {
		all = append(all, string(f.Result))
	}
	return strings.Join(all, " ")
}

// TestModelsAreJudged checks that an agent that does not participate in the round adopts a new model unless the model
// is worse than the model in use by more than the margin.
func TestModelsAreJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(*agent.Config) {})
		s.offers(1, 1, 0, 0)
		s.offers(2, 2, 2, -1.5)  // the model's risk on the held-out rows is (0.25+1)/4
		s.offers(3, 3, 2, -1.55) // not worse than the model in use by more than half
		s.offers(4, 4, 2, -2)
		s.offers(5, 5, 2, -1)
		if got, want := s.judged(), "taken taken taken worse taken"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		f := eventsOf[predict.ModelJudged](s)[3]
		if f.HeldOutRows != 2 || math.Abs(f.Risk-(1+4)/4.) > 1e-6 ||
			math.Abs(f.RiskOfModelInUse-(1+4)*0.55*0.55/4) > 1e-6 ||
			f.Version != 4 {
			t.Errorf("%+v", f)
		}
		if all := eventsOf[predict.ModelInUseChanged](s); len(all) != 4 || all[3].Version != 5 || s.inUse() != "5/5" {
			t.Errorf("%+v, %s in use", all, s.inUse())
		}
		k, err := modelfile.OpenKeptModels(store.LocalDisk, s.cfg.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := k.List()
		if err != nil || len(kept) != 2 || kept[0].Name() != "5/3" || !kept[1].IsInUse {
			t.Errorf("%+v, %v", kept, err)
		}
		m, err := k.ActiveModel()
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Predictor()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Predict([]float32{10, 3}).Value; got != 17 || m.TaskName != "a task" || m.Target != "y" {
			t.Errorf("%v of %+v", got, m)
		}
		if len(s.heard(wire.TypeUpdate)) != 0 {
			t.Error("it has trained")
		}
	})
}

// TestModelsWait checks that an untrained model is never used. The first trained model, and each version number that is
// double the last, must be judged at once; other versions must wait for MinModelChangeInterval. The final model of the
// run must not wait.
func TestModelsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(*agent.Config) {})
		offered := func(v int, change func(*wire.Announcement)) {
			a := s.training(taskOf("a task"), float32(v)/10, 0)
			a.BaseModelVersion = wire.ModelVersion(v)
			change(&a)
			s.announce(wire.RoundID(v+1), a)
			wait(time.Minute)
		}
		for v, want := range []string{"none", "5/1", "5/2", "5/2", "5/4", "5/4"} {
			if offered(v, func(*wire.Announcement) {}); s.inUse() != want {
				t.Errorf("%s in use after version %d, want %s", s.inUse(), v, want)
			}
		}
		if wait(9 * time.Minute); s.inUse() != "5/5" {
			t.Errorf("%s in use after predict.refresh, want 5/5", s.inUse())
		}
		offered(6, func(*wire.Announcement) {})
		if s.inUse() != "5/5" {
			t.Errorf("%s in use after version 6, want 5/5", s.inUse())
		}
		offered(7, func(a *wire.Announcement) { a.Phase = wire.PhaseFinished })
		if s.inUse() != "5/7" {
			t.Errorf("%s in use when the run is over, want 5/7", s.inUse())
		}
	})
}

// TestPinned checks that the agent adopts no model while the owner has pinned a model, and adopts the newest model
// afterwards. The agent must report both changes.
func TestPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(*agent.Config) {})
		s.offers(1, 1, 1, 0)
		s.offers(2, 2, 2, -0.5)
		k, err := modelfile.OpenKeptModels(store.LocalDisk, s.cfg.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Rollback(); err != nil {
			t.Fatal(err)
		}
		s.offers(3, 3, 2, -1)
		all := eventsOf[predict.ModelInUseChanged](s)
		if f := all[len(all)-1]; s.inUse() != "5/1" || f.Version != 1 || !f.IsPinned || s.judged() != "taken taken" {
			t.Errorf("%s in use, %+v, judged: %s", s.inUse(), f, s.judged())
		}
		if err := k.Activate(0); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		all = eventsOf[predict.ModelInUseChanged](s)
		if f := all[len(all)-1]; s.inUse() != "5/3" || f.Version != 3 || f.IsPinned {
			t.Errorf("%s in use, %+v", s.inUse(), f)
		}
	})
}

// TestModelHook checks that the configured hook is called for each adopted model, and that a model stays in use if the
// hook fails. After a restart, the agent must read the model in use without adopting it again.
func TestModelHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := keeps(t, func(c *agent.Config) {
			c.Predict.OnModelActivated = func(_ context.Context, m *modelfile.Model) error {
				told = append(told, m.DisplayName())
				return errors.New("exit status 1")
			}
		})
		s.offers(1, 1, 1, 0)
		if len(eventsOf[predict.ActivationCommandFailed](s)) != 1 || strings.Join(told,
			" ") != "5/1" || s.inUse() != "5/1" {
			t.Errorf("told of %s, %s in use", told, s.inUse())
		}
		s.stop()
		s.start()
		s.send(s.topics.Announcement(), s.announced)
		wait(time.Hour)
		if all := eventsOf[predict.ModelInUseChanged](s); len(all) != 2 || all[1].Version != 1 || len(told) != 1 {
			t.Errorf("%+v; told of %s", all, told)
		}
	})
}

// TestModelsHeal checks that neither a file lock held by another process nor a damaged file of the model in use delays
// the adoption of a new model for long.
func TestModelsHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := errors.New("locked")
		var free atomic.Bool
		s := keeps(t, func(c *agent.Config) {
			c.Predict.LockKeptModels = func() (func() error, error) {
				if free.Load() {
					return func() error { return nil }, nil
				}
				return nil, locked
			}
		})
		a := s.training(taskOf("a task"), 1, 0)
		a.BaseModelVersion = 1
		s.announce(1, a)
		wait(time.Second)
		if f := eventsOf[predict.ModelJudged](s); len(f) != 1 || !errors.Is(f[0].Err, locked) || s.inUse() != "none" {
			t.Errorf("%+v", f)
		}
		free.Store(true)
		wait(time.Minute)
		if s.inUse() != "5/1" {
			t.Errorf("%s in use", s.inUse())
		}
		s.stop()
		path := modelfile.ActiveModelPath(s.cfg.StateDir)
		if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start()
		s.offers(2, 2, 0, 0) // The agent adopts the model, since it cannot compare it with another model.
		if s.inUse() != "5/2" {
			t.Errorf("%s in use", s.inUse())
		}
	})
}

// TestBlindModelsWait checks that a new model does not replace the model in use while the held-out rows for judging it
// are unavailable. The agent must keep the model until the rows are available, and must not fetch it again.
func TestBlindModelsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogger(t, "a,b,y\n1,0,2\n0,1,-1\n1,1,1\n2,1,3\n1,2,0\n")
		l.stop()
		l.cfg.TaskData.HeldOutShare, l.cfg.Predict = 0.4, &predict.Config{MaxKeptModels: 2}
		l.start()
		l.offers(1, 1, 1, 0)
		l.write("a,b,y\n1,0,x\n")
		a := l.training(taskOf("a task"), 2, -1)
		base, parts, err := transfer.BlobMessages(a.BaseModel.Inline, wire.Digest{})
		if err != nil {
			t.Fatal(err)
		}
		a.BaseModel, a.BaseModelVersion = base, 2
		publish := func() {
			for part, payload := range parts {
				l.send(l.topics.BlobPart(base.Hash.TopicLevel(), part), payload)
			}
		}
		l.announce(2, a)
		publish() // The announcement arrives before the agent has checked its rows.
		wait(11 * time.Minute)
		manifest := l.topics.BlobPart(base.Hash.TopicLevel(), transfer.ManifestPartName)
		fetched := func() int { return strings.Count(strings.Join(l.ever, " ")+" ", manifest+" ") }
		if l.inUse() != "5/1" || l.judged() != "taken"+strings.Repeat(" blind", 12) || fetched() != 1 {
			t.Errorf("%s in use, judged: %s; fetched %d times", l.inUse(), l.judged(), fetched())
		}
		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n2,1,3\n1,2,0\n")
		wait(2 * time.Minute)
		publish()
		wait(time.Minute)
		if l.inUse() != "5/2" {
			t.Errorf("%s in use, judged: %s; fetched %d times", l.inUse(), l.judged(), fetched())
		}
	})
}

// TestModelsArePulledOnce checks that the agent fetches a model only once if it needs the model for both training and
// predictions, and does not fetch the model in use again.
func TestModelsArePulledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keeps(t, func(c *agent.Config) { c.Predict.MinModelChangeInterval = 0 })
		for i, drawn := range []string{"not", "before", "after", "in time"} {
			r := wire.RoundID(i + 1)
			a := s.training(taskOf("a task"), float32(i)/2, 0)
			var parts iter.Seq2[string, []byte]
			var err error
			if a.BaseModel, parts, err = transfer.BlobMessages(a.BaseModel.Inline, wire.Digest{}); err != nil {
				t.Fatal(err)
			}
			a.BaseModelVersion = wire.ModelVersion(i + 1)
			digest := s.announce(r, a)
			if drawn == "before" {
				s.invite(r, digest)
			}
			for part, payload := range parts {
				if part == transfer.ManifestPartName {
					s.send(s.topics.BlobPart(a.BaseModel.Hash.TopicLevel(), part), payload)
				}
			}
			if drawn == "in time" {
				s.invite(r, digest) // The invitation arrives while the model is being fetched.
			}
			for part, payload := range parts {
				if part != transfer.ManifestPartName {
					s.send(s.topics.BlobPart(a.BaseModel.Hash.TopicLevel(), part), payload)
				}
			}
			wait(time.Second)
			if drawn == "after" {
				s.invite(r, digest)
			}
			wait(30 * time.Second)
			manifest := s.topics.BlobPart(a.BaseModel.Hash.TopicLevel(), transfer.ManifestPartName)
			if n := strings.Count(strings.Join(s.ever, " ")+" ", manifest+" "); n != 1 {
				t.Errorf("drawn %s: the manifest is asked for %d times", drawn, n)
			}
			if want := fmt.Sprintf("5/%d", i+1); s.inUse() != want {
				t.Errorf("drawn %s: %s in use, judged: %s", drawn, s.inUse(), s.judged())
			}
			if all := s.heard(wire.TypeUpdate); drawn != "not" && (len(all) == 0 || all[len(all)-1].Round != r) {
				t.Errorf("drawn %s: no update", drawn)
			}
		}
	})
}
