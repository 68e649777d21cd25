package liar_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSuite checks that a trainer that sends false data passes the conformance suite of trainers.
func TestSuite(t *testing.T) {
	for _, name := range liar.Names() {
		t.Run(name, func(t *testing.T) {
			lie, err := liar.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			trainers.Suite(t, trainers.Traits{ReportsFalseNumbers: true},
				func() training.Trainer { return liar.Trainer{Trainer: training.LocalTrainer{}, Lie: lie} })
		})
	}
}

// honest is a trainer that returns the update (1, 2) and the moments of four rows.
type honest struct{ training.LocalTrainer }

func (honest) NewBlock(context.Context, wire.RoundID, *task.CompiledTask[float32],
	task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	return honestBlock{}, nil
}

func (honest) Moments(*task.CompiledTask[float32], *learner.Samples[float32]) ([]float64, error) {
	return []float64{4, 6, 8, 20, 30}, nil
}

type honestBlock struct{ training.LocalStepBlock }

func (honestBlock) OutcomeFromBase([]float32, []float32) (task.LocalOutcome[float32], error) {
	return task.LocalOutcome[float32]{UpdateVector: []float32{1, 2}}, nil
}

// TestLies checks the false data that an agent sends for each lie.
func TestLies(t *testing.T) {
	nan := float32(math.NaN())
	truth := []float64{4, 6, 8, 20, 30}
	for name, want := range map[string]struct {
		update  []float32
		moments []float64
		rows    uint64
	}{
		"constant:1e30": {[]float32{1e30, 1e30}, truth, 4},
		"max":           {[]float32{math.MaxFloat32, math.MaxFloat32}, truth, 4},
		"nan":           {[]float32{nan, nan}, truth, 4},
		"signflip":      {[]float32{-10, -20}, truth, 4},
		"signflip:1":    {[]float32{-1, -2}, truth, 4},
		"moments":       {[]float32{0, 0}, []float64{4, 1e6, 1e6, 0, 0}, 4},
		"rows":          {[]float32{0, 0}, []float64{1e9, 0, 0, 1e9, 1e9}, 1e9},
	} {
		lie, err := liar.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		l := liar.Trainer{Trainer: honest{}, Lie: lie}
		b, err := l.NewBlock(t.Context(), 1, nil, task.LocalJob[float32]{Rand: rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		out, err := b.OutcomeFromBase(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := l.Moments(nil, nil)
		rows := l.ReportedRowCount(learner.NewSamples(1, make([]float32, 4), make([]float32, 4)))
		equal := func(a, b float32) bool { return a == b || a != a && b != b }
		if err != nil || !slices.EqualFunc(out.UpdateVector, want.update, equal) || !slices.Equal(v, want.moments) ||
			rows != want.rows {
			t.Errorf("%s: update %v, moments %v, %d rows, %v; want %+v", name, out.UpdateVector, v, rows, err, want)
		}
	}
	// A colluding attack requires the updates of other agents, so Parse must refuse it.
	for _, other := range []string{"truth", "alie"} {
		if _, err := liar.Parse(other); err == nil {
			t.Errorf("%s is a lie", other)
		}
	}
}
