package world

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Method names what a federation computes, and how. The zero value is FedAvg.
type Method string

// configure returns what the plan's rounds are, and its task.
func (p *Plan) configure() (round.Config, wire.Task) {
	r := round.DefaultConfig()
	r.Participants, r.Quorum, r.Rounds, r.Seed = p.Participants, p.Quorum, p.Rounds, p.Seed
	r.Gather = round.Gather{Target: p.Agents, Minimum: p.Participants, Within: 20 * time.Second, Spread: time.Second}
	r.Deadline, r.Pause = time.Minute, time.Second
	t := wire.Task{
		Name: "power", Features: []string{"warm", "wet", "wind"}, Target: "power", MinSamples: 5,
		Model: wire.Model{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.RiskSquared, Bias: true},
		Training: wire.Training{Exchange: spec.ExchangeParameters, BatchSize: 2, StepSize: 0.01, Budget: 5000,
			MinSteps: 1, MaxSteps: 5},
	}
	if p.Hidden > 0 {
		t.Model.Hidden = []uint32{p.Hidden}
		t.Training.StepSize = 1e-5
	}
	if change := methods[p.Method]; change != nil {
		change(&r, &t)
	}
	return r, t
}

const refuseAbove Method = "refuse_above, fedyogi"

// methods are all of them, but for the zero value: each changes what the round and the task are else.
var methods = map[Method]func(r *round.Config, t *wire.Task){
	"weights in the step": func(r *round.Config, _ *wire.Task) { r.Weights = spec.WeightsSamples },
	"weights in the mean": func(r *round.Config, _ *wire.Task) {
		r.Weights, r.Weighting = spec.WeightsSamples, spec.WeightingMean
	},
	"with replacement": func(r *round.Config, _ *wire.Task) {
		r.Sampling, r.Weights = spec.WithReplacement, spec.WeightsEqual
	},
	"over-selection": func(r *round.Config, _ *wire.Task) { r.OverSelect = 1 },
	"gradients": func(_ *round.Config, t *wire.Task) {
		t.Training.Exchange, t.Training.MaxSteps = spec.ExchangeGradient, 1
	},
	"trimmed mean": func(r *round.Config, _ *wire.Task) {
		r.Weights, r.Aggregation = spec.WeightsEqual, rule.Config{Rule: rule.TrimmedMean, Trim: 0.34}
	},
	refuseAbove: func(r *round.Config, _ *wire.Task) {
		r.Aggregation.RefuseAbove = 1.2
		r.ServerOptimizer = optimizer.Config{Name: "fedyogi", LearningRate: 0.05, Beta1: 0.8, Beta2: 0.9, Tau: 0.01}
	},
	"fedavgm": func(r *round.Config, _ *wire.Task) {
		r.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.7, Momentum: 0.6, Tau: 1}
	},
	"int8, fedprox": func(_ *round.Config, t *wire.Task) {
		t.Training.Codec, t.Training.Proximal = spec.CodecInt8, 0.3
	},
	"bfloat16, huber": func(_ *round.Config, t *wire.Task) {
		t.Training.Codec, t.Model.Risk, t.Model.HuberDelta = spec.CodecBFloat16, spec.RiskHuber, 0.5
	},
	"feddec": feddec,
	"feddec, endless": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		t.Mixing.Endless, t.Mixing.Codec = true, spec.CodecInt8
	},
}

func feddec(r *round.Config, t *wire.Task) {
	r.Algorithm, r.Sampling, r.Weights = spec.FedDec, spec.WithReplacement, spec.WeightsEqual
	t.Training.Normalize = false
	t.Mixing = wire.Mixing{Every: 1, Wait: 2000, Repeat: 500, Drain: 10_000, Codec: spec.CodecRaw}
}
