package coordinator_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/sim"
	"github.com/fedmesh/fedmesh/sim/data"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// smallRows is rowsOf on scales that need no standardisation.
func smallRows(seed uint64, n int) table {
	rng := rand.New(rand.NewPCG(seed, 8))
	b := []byte("warm,wet,wind,power\n")
	for range n {
		warm, wet, wind := rng.NormFloat64(), rng.NormFloat64()+0.1*float64(seed), rng.Float64()
		b = fmt.Appendf(b, "%.4f,%.4f,%.4f,%.4f\n", warm, wet, wind, 1-1.5*warm-0.1*wet+2*wind+0.1*rng.NormFloat64())
	}
	return table(b)
}

// TestSimulatorIsTheFederation holds every model of a live federation, with a broker between its parties, against the
// simulator's, to the bit.
func TestSimulatorIsTheFederation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*coordinator.Config, *sim.Experiment)
	}{
		{"weights in the step", func(*coordinator.Config, *sim.Experiment) {}},
		{"weights in the mean", func(c *coordinator.Config, e *sim.Experiment) {
			c.Round.Weighting, e.Weighting = spec.WeightingMean, spec.WeightingMean
		}},
		{"equal weights, with replacement", func(c *coordinator.Config, e *sim.Experiment) {
			c.Round.Weights, c.Round.Sampling, e.Sampling = spec.WeightsEqual, spec.WithReplacement,
				spec.WithReplacement
			c.Round.Quorum = 1
		}},
		{"FedProx, the huber risk and a frozen layer", func(c *coordinator.Config, e *sim.Experiment) {
			c.Task.Model.Hidden, c.Task.Model.Risk, c.Task.Model.HuberDelta = []uint32{4}, spec.RiskHuber, 0.5
			c.Task.Model.Frozen, e.Data.Model.Frozen = []string{"layer0.weight"}, []string{"layer0.weight"}
			c.Task.Training.Proximal, e.Proximal = 0.3, 0.3
		}},
		{"int8", func(c *coordinator.Config, e *sim.Experiment) {
			c.Task.Training.Codec, e.Codec = spec.CodecInt8, spec.CodecInt8
		}},
		{"gradients in bfloat16, trimmed", func(c *coordinator.Config, e *sim.Experiment) {
			c.Task.Training.Exchange, e.Exchange, e.LocalSteps = spec.ExchangeGradient, spec.ExchangeGradient,
				sim.Each(1)
			c.Task.Training.Codec, e.Codec, c.Round.Weights = spec.CodecBFloat16, spec.CodecBFloat16, spec.WeightsEqual
			c.Round.Aggregation = rule.Config{Rule: rule.TrimmedMean, Trim: 0.34}
			e.Aggregation = c.Round.Aggregation
		}},
		{"the trimmed mean and momentum", func(c *coordinator.Config, e *sim.Experiment) {
			c.Round.Weights, c.Round.Participants, e.Participants = spec.WeightsEqual, 5, 5
			c.Round.Aggregation = rule.Config{Rule: rule.TrimmedMean, Trim: 0.2}
			c.Round.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.7, Momentum: 0.6, Tau: 1}
			e.Aggregation, e.ServerOptimizer = c.Round.Aggregation, c.Round.ServerOptimizer
		}},
		{"long updates left out, and FedYogi", func(c *coordinator.Config, e *sim.Experiment) {
			c.Round.Participants, e.Participants, c.Round.Aggregation.RefuseAbove = 5, 5, 1.1
			c.Round.ServerOptimizer = optimizer.DefaultConfig()
			c.Round.ServerOptimizer.Name = "fedyogi"
			e.Aggregation, e.ServerOptimizer = c.Round.Aggregation, c.Round.ServerOptimizer
		}},
		{"gradients", func(c *coordinator.Config, e *sim.Experiment) {
			c.Task.Training.Exchange, e.Exchange, e.LocalSteps = spec.ExchangeGradient, spec.ExchangeGradient,
				sim.Each(1)
		}},
		{"a network, a schedule and all rows", func(c *coordinator.Config, e *sim.Experiment) {
			c.Task.Model.Hidden, c.Task.Training.BatchSize, e.BatchSize = []uint32{4}, 0, sim.Each(0)
			c.Task.Training.StepSize, c.Task.Training.StrongConvexity, c.Task.Training.Gamma = 0, 1, 20
			e.StepSize.Diminishing, e.StepSize.StrongConvexity, e.StepSize.Gamma = true, 1, 20
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 5, memory.Options{})
				f.cfg.Standardize = false
				f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.Seed, f.cfg.Round.Rounds = 3, 3, 11, 6
				f.cfg.Task.Training.StepSize = 0.1
				for i, a := range f.agents {
					a.data = smallRows(uint64(i), 20+7*i)
				}
				e := sim.Default()
				e.Seed, e.Runs, e.Precision, e.Participants = 11, 1, sim.Float32, 3
				// E_k = 1 s by StepTime
				e.LocalSteps, e.BatchSize, e.StepSize.Constant = sim.Each(10, 6, 5, 4, 3), sim.Each(4), 0.1
				tt.change(&f.cfg, &e)
				f.start()
				f.finished(time.Hour)
				for _, m := range facts[coordinator.ModelReady](f) {
					e.Rounds = int(m.Version)
					if want := f.simulated(e); m.Hash != want {
						t.Fatalf("model %d of the federation is %x, of the simulator %x", m.Version, m.Hash[:4],
							want[:4])
					}
				}
			})
		})
	}
}

// simulated is the hash of the last model of an experiment on this federation's task and data.
func (f *federation) simulated(e sim.Experiment) wire.Digest {
	f.t.Helper()
	p, err := task.Compile[float32](f.cfg.Task)
	if err != nil {
		f.t.Fatal(err)
	}
	var held []*learner.Samples[float32]
	var rows []float64
	for _, a := range f.agents {
		s, err := a.data.Load(f.cfg.Task.Features, f.cfg.Task.Target)
		if err != nil {
			f.t.Fatal(err)
		}
		held, rows = append(held, s), append(rows, float64(s.Len()))
	}
	problem, err := data.NewHeld(p.Model.Architecture(), held)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, a := range f.agents {
		problem.Labels = append(problem.Labels, string(a.id))
	}
	if f.cfg.Round.Weights == spec.WeightsSamples {
		problem.Weights = rows
	}
	r, err := sim.On(context.Background(), e, func(int) (sim.Instance[float32], error) {
		return sim.Instance[float32]{Problem: problem}, nil
	}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	model := make([]float32, len(r.Final[0]))
	for j, v := range r.Final[0] {
		model[j] = float32(v)
	}
	return sha256.Sum256(wire.AppendVector(nil, model))
}
