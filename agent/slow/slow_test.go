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

func (instant) Block(context.Context, wire.RoundID, *task.Problem[float32], task.Job[float32]) (agent.Block, error) {
	return nothing{}, nil
}

type nothing struct{ agent.Block }

func (nothing) Take([]float32, uint64, uint64) error { return nil }

// Local steps take as long as declared, all at once and one by one, and end with their context.
func TestSlow(t *testing.T) {
	for _, each := range []uint64{5, 1} {
		for within, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second,
			3 * time.Second: 3 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				b, err := slow.Trainer{Trainer: instant{}, StepTime: 2 * time.Second}.Block(ctx, 1, nil,
					task.Job[float32]{})
				for at := uint64(0); at < 5 && err == nil; at += each {
					err = b.Take(nil, at+1, at+each)
				}
				if took := time.Since(began); err != nil || took != want {
					t.Errorf("five steps of 2 s within %v, %d at once, took %v, want %v; %v", within, each, took, want,
						err)
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
			x := []float32{0, 0}
			b, err := trainer.Block(t.Context(), 1, p, task.Job[float32]{
				Base: x, Samples: learner.NewSamples(2, []float32{1, 0, 0, 1, 1, 1}, []float32{2, -1, 1}),
				Weight: 1, Steps: 7,
				Rand: rand.New(rand.NewPCG(1, 2)),
			})
			if err == nil {
				err = b.Take(x, 1, 7)
			}
			if err == nil {
				outcomes[i], err = b.OutcomeFrom([]float32{0, 0}, x)
			}
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
