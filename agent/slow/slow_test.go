package slow_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/slow"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// instant is a trainer whose steps take no time and do nothing.
type instant struct{ agent.Trainer }

func (instant) Local(_ context.Context, _ *task.Problem[float32], j task.Job[float32]) (task.Outcome[float32], error) {
	return task.Outcome[float32]{Steps: j.Steps}, nil
}

func (instant) Block(context.Context, wire.RoundID, *task.Problem[float32], task.Job[float32]) (agent.Block, error) {
	return nothing{}, nil
}

type nothing struct{ agent.Block }

func (nothing) Step([]float32, uint64) error { return nil }

// Local steps take as long as declared, in a round and in a block, and end with their context.
func TestSlow(t *testing.T) {
	train := map[string]func(context.Context, agent.Trainer){
		"a round": func(ctx context.Context, s agent.Trainer) {
			if _, err := s.Local(ctx, nil, task.Job[float32]{Steps: 5}); err != nil {
				t.Error(err)
			}
		},
		"a block": func(ctx context.Context, s agent.Trainer) {
			b, err := s.Block(ctx, 1, nil, task.Job[float32]{})
			for i := range uint64(5) {
				if err == nil {
					err = b.Step(nil, i+1)
				}
			}
			if err != nil {
				t.Error(err)
			}
		},
	}
	for name, train := range train {
		for within, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second,
			3 * time.Second: 3 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				train(ctx, slow.Trainer{Trainer: instant{}, StepTime: 2 * time.Second})
				if took := time.Since(began); took != want {
					t.Errorf("%s: five steps of 2 s within %v took %v, want %v", name, within, took, want)
				}
			})
		}
	}
}

// Slow steps come to what quick ones come to.
func TestSameOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := task.Compile[float32](wire.Task{
			Name: "a task", Features: []string{"a", "b"}, Target: "y",
			Model: wire.Model{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.RiskSquared},
			Training: wire.Training{Exchange: spec.ExchangeParameters, BatchSize: 1, StepSize: 0.1, Budget: 3000,
				MinSteps: 1, MaxSteps: 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		var outcomes [2]task.Outcome[float32]
		for i, trainer := range []agent.Trainer{agent.Learner{},
			slow.Trainer{Trainer: agent.Learner{}, StepTime: time.Second}} {
			outcomes[i], err = trainer.Local(t.Context(), p, task.Job[float32]{
				Base: []float32{0, 0}, Samples: learner.NewSamples(2, []float32{1, 0, 0, 1, 1, 1}, []float32{2, -1, 1}),
				Weight: 1, Steps: 7,
				Rand: rand.New(rand.NewPCG(1, 2)),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if a, b := outcomes[0], outcomes[1]; a.Steps != 7 || b.Steps != 7 || a.Vector[0] != b.Vector[0] ||
			a.Vector[1] != b.Vector[1] {
			t.Errorf("%+v, and slowly %+v", a, b)
		}
	})
}
