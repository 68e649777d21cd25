package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// personalTasks returns tasks with a personal bias, and tasks with a completely personal model. The field base is the
// number of parameters of the shared model.
func personalTasks() map[string]struct {
	wire.Task
	base []float32
} {
	bias, ditto := taskOf("a bias"), taskOf("ditto")
	bias.Model.HasBias, bias.Personal.PersonalTensors = true, []string{"layer0.bias"}
	ditto.Personal = wire.PersonalModelSettings{UsesDitto: true, DittoLambda: 0.5}
	return map[string]struct {
		wire.Task
		base []float32
	}{"a bias": {bias, []float32{0.5, -0.25}}, "ditto": {ditto, []float32{0.5, -0.25}}}
}

// own computes the expected personal parameters of an agent.
type own struct {
	t *testing.T
	v []float32
}

// round returns the digest of the update that is expected in a round, and updates the expected personal parameters.
func (o *own) round(of wire.Task, base []float32) wire.Digest {
	p := compiled(o.t, of)
	rows, _ := fiveRows(nil, "")
	if o.v == nil {
		o.v = p.InitialOwnParameters(0)
	}
	out, err := p.RunLocalSteps(task.LocalJob[float32]{BaseParameters: p.AllParameters(base, o.v), OwnParameters: o.v,
		Samples: rows, StepWeight: 1, Steps: 3})
	if err != nil {
		o.t.Fatal(err)
	}
	o.v = out.OwnParameters
	return wire.BlobDigest(wire.AppendVector(nil, out.UpdateVector))
}

func compiled(t *testing.T, of wire.Task) *task.CompiledTask[float32] {
	p, err := task.Compile[float32](of)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPersonalSurvives checks that personal parameters are kept across restarts and changes of the step size. After a
// crash during a round, the round must start again from the same parameters. In another run, or if their file is lost,
// the parameters must be reset and the loss reported.
func TestPersonalSurvives(t *testing.T) {
	for name, of := range personalTasks() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				trains := func(when string, r wire.RoundID, attempt wire.RoundAttempt, of wire.Task, base []float32,
					want wire.Digest, begun int) {
					t.Helper()
					a := s.training(of, base...)
					a.Attempt = attempt
					s.invite(r, s.announce(r, a))
					wait(20 * time.Second)
					if _, u := s.update(); u.PayloadManifest.Hash != want {
						t.Errorf("%s: the update is another one", when)
					}
					if n := len(eventsOf[training.PersonalModelReset](s)); n != begun {
						t.Errorf("%s: it has begun anew %d times, want %d", when, n, begun)
					}
				}
				restart := func(without ...string) {
					s.stop()
					for _, name := range without {
						if err := os.Remove(filepath.Join(s.cfg.StateDir, name)); err != nil {
							t.Fatal(err)
						}
					}
					s.start()
				}
				s.start()
				o := &own{t: t}
				trains("the first round", 1, 1, of.Task, of.base, o.round(of.Task, of.base), 1)
				restart()
				slower := of.Task
				slower.Training.StepSize /= 2
				second := o.round(slower, of.base)
				trains("another step size", 2, 1, slower, of.base, second, 1)
				restart("update.a")
				trains("the same round again", 2, 2, slower, of.base, second, 1)
				s.run++
				other := &own{t: t}
				trains("another run", 1, 1, slower, of.base, other.round(slower, of.base), 2)
				restart("personal.a", "personal.b")
				other.v = nil
				trains("without its file", 2, 1, slower, of.base, other.round(slower, of.base), 3)
			})
		})
	}
}

// TestPersonalModels checks that an agent predicts with its own model: the shared model with personal tensors, the
// agent's ditto model (trained separately), or the fine-tuned model.
func TestPersonalModels(t *testing.T) {
	tuned := taskOf("fine-tuned")
	tuned.FinetuneSteps = 7
	tasks := personalTasks()
	tasks["fine-tuned"] = struct {
		wire.Task
		base []float32
	}{tuned, []float32{0.5, -0.25}}
	for name, of := range tasks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := keeps(t, func(*agent.Config) {})
				a := s.training(of.Task, of.base...)
				s.invite(1, s.announce(1, a))
				wait(11 * time.Minute)
				next := []float32{1, -0.5}
				s.announce(2, func() wire.Announcement {
					a := s.training(of.Task, next...)
					a.BaseModelVersion = 1
					return a
				}())
				wait(11 * time.Minute)
				p := compiled(t, of.Task)
				rows, _ := fiveRows(nil, "")
				rows = rows.FirstSamples(3) // The other rows are held out.
				want := slices.Clone(next)
				if p.HasPersonalPart() {
					first := p.InitialOwnParameters(0)
					out, err := p.RunLocalSteps(task.LocalJob[float32]{BaseParameters: p.AllParameters(of.base, first),
						OwnParameters: first, Samples: rows,
						StepWeight: 1, Steps: 3})
					if err != nil {
						t.Fatal(err)
					}
					want = p.PredictionParameters(next, out.OwnParameters)
				} else if err := p.Finetune(want, rows, nil, 0, nil); err != nil {
					t.Fatal(err)
				}
				m := s.active()
				got := make([]float32, len(m.ParameterBytes)/4)
				if err := wire.DecodeVector(got, m.ParameterBytes); err != nil || !slices.Equal(got, want) {
					t.Errorf("it predicts with %v, want %v (%v)", got, want, s.judged())
				}
				if m.Version != 1 || m.ParameterDigest != wire.BlobDigest(m.ParameterBytes) || slices.Equal(got,
					next) ||
					learner.FirstNonFiniteIndex(got) >= 0 {
					t.Errorf("model %s with hash %s", m.DisplayName(), m.ParameterDigest)
				}
			})
		})
	}
}

// active returns the model in use.
func (s *scene) active() *modelfile.Model {
	s.t.Helper()
	k, err := modelfile.OpenKeptModels(store.LocalDisk, s.cfg.StateDir)
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := k.ActiveModel()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}
