package world

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Method is the name of a change to the default configuration, such as another algorithm or codec. The empty name means
// FedAvg without changes.
type Method string

// configure returns the round configuration and the task that result from the plan.
func (p *Plan) configure() (round.Config, wire.Task) {
	r := round.DefaultConfig()
	r.Participants, r.Quorum, r.MaxAggregations, r.Seed = p.Participants, p.Quorum, p.Rounds, p.Seed
	r.Gather = round.GatherConfig{TargetAgents: p.Agents, MinAgents: p.Participants, WindowLength: 20 * time.Second,
		HelloSpread: time.Second}
	r.RoundTimeout, r.PauseBetweenRounds = time.Minute, time.Second
	r.Evaluation.VersionInterval, r.Evaluation.MinRows = p.Evaluates, leastHeld
	t := wire.Task{
		Name: "power", Features: []string{"warm", "wet", "wind"}, TargetColumn: "power", MinSamples: 5,
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 2, StepSize: 0.01,
			StepTimeBudgetMillis: 5000,
			MinLocalSteps:        1, MaxLocalSteps: 5},
	}
	if p.Hidden > 0 {
		t.Model.HiddenUnits = []uint32{p.Hidden}
		t.Training.StepSize = 1e-5
	}
	for _, of := range []map[Method]func(*round.Config, *wire.Task){methods, undrawnMethods} {
		if change := of[p.Method]; change != nil {
			change(&r, &t)
		}
	}
	return r, t
}

const refuseAbove Method = "refuse_above, fedyogi"

// undrawnMethods are methods that NewPlan does not choose. New optimisers, rules, codecs and kinds of models belong
// here and not in methods, because new entries in methods would change the plans of existing seeds.
var undrawnMethods = map[Method]func(r *round.Config, t *wire.Task){
	"autoencoder": func(_ *round.Config, t *wire.Task) {
		t.TargetColumn, t.Model.Kind, t.Model.HiddenUnits = "", spec.ModelAutoencoder, []uint32{3, 1, 3}
	},
	"autoencoder, gradients": func(_ *round.Config, t *wire.Task) {
		t.TargetColumn, t.Model.Kind, t.Model.HiddenUnits = "", spec.ModelAutoencoder, []uint32{2}
		t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.ExchangeGradient, 1
	},
	"conv1d":   func(_ *round.Config, t *wire.Task) { convolves(t) },
	"logistic": func(_ *round.Config, t *wire.Task) { t.Model.Risk = spec.LossLogistic },
	"softmax":  func(_ *round.Config, t *wire.Task) { t.Model.Risk, t.Model.Outputs = spec.LossSoftmax, 3 },
	"huber":    func(_ *round.Config, t *wire.Task) { t.Model.Risk, t.Model.HuberDelta = spec.LossHuber, 0.5 },
	"mlp":      func(_ *round.Config, t *wire.Task) { t.Model.HiddenUnits = []uint32{4} },
	"conv1d, feddec, int8, filters frozen": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		convolves(t)
		t.Model.FrozenTensors, t.Training.UpdateCodec = []string{"layer0"}, spec.CodecInt8
	},
	"conv1d, the last layer their own": func(_ *round.Config, t *wire.Task) {
		convolves(t)
		t.Personal.PersonalTensors = []string{"last"}
	},
}

// convolves selects a convolutional model and treats the features as three time steps of one channel.
func convolves(t *wire.Task) {
	t.Model.Kind, t.Model.HiddenUnits = spec.ModelConv1D, []uint32{3}
	t.Model.Convolution = wire.ConvolutionLayers{InputChannels: 1, KernelSteps: 2, PoolSteps: 2,
		FiltersPerLayer: []uint32{4}}
}

// methods are the methods from which NewPlan chooses, in addition to the empty method. Each function changes the
// default round configuration and task.
var methods = map[Method]func(r *round.Config, t *wire.Task){
	"weights in the step": func(r *round.Config, _ *wire.Task) { r.AgentWeightRule = spec.WeightsSamples },
	"weights in the mean": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.WeightPlacement = spec.WeightsSamples, spec.WeightInServerMean
	},
	"clip, weights in the step": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.Aggregation.ClipAboveFactor = spec.WeightsSamples, 1.05
	},
	"clip, gradients": func(r *round.Config, t *wire.Task) {
		r.Aggregation.ClipAboveFactor, r.Aggregation.RefuseAboveFactor = 1, 1.5
		t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.ExchangeGradient, 1
	},
	"with replacement": func(r *round.Config, _ *wire.Task) {
		r.Sampling, r.AgentWeightRule = spec.SamplingWithReplacement, spec.WeightsEqual
	},
	"importance, weights in the mean, clip": func(r *round.Config, _ *wire.Task) {
		r.Sampling, r.AgentWeightRule, r.WeightPlacement = spec.SamplingImportance, spec.WeightsSamples,
			spec.WeightInServerMean
		r.Aggregation.ClipNorm = 1.05
	},
	"importance, gradients": func(r *round.Config, t *wire.Task) {
		r.Sampling, t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.SamplingImportance, spec.ExchangeGradient,
			1
	},
	"over-selection": func(r *round.Config, _ *wire.Task) { r.ExtraParticipants = 1 },
	"some answer, others leave": func(r *round.Config, _ *wire.Task) {
		r.Gather.TargetAgents, r.Gather.ResponseLottery = 0, round.ResponseLotteryConfig{TargetHellos: r.Participants,
			DisconnectDuration: 2 * time.Second,
			DisconnectSpread:   10 * time.Second, Presence: round.PresenceInRoundOnly}
	},
	"gradients": func(_ *round.Config, t *wire.Task) {
		t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.ExchangeGradient, 1
	},
	"gradients, all rows": func(_ *round.Config, t *wire.Task) {
		t.Training.ExchangeKind, t.Training.MaxLocalSteps, t.Training.BatchSize = spec.ExchangeGradient, 1, 0
	},
	"trimmed mean": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.Aggregation = spec.WeightsEqual, rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.34}
	},
	"median, fedavgm": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.Aggregation.Rule = spec.WeightsEqual, rule.Median
		r.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.7, Momentum: 0.6, Tau: 1}
	},
	"krum, clip": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.Aggregation.Rule, r.Aggregation.ClipNorm = spec.WeightsEqual, rule.Krum, 0.05
	},
	"multi-krum, with replacement": func(r *round.Config, _ *wire.Task) {
		r.Sampling, r.AgentWeightRule = spec.SamplingWithReplacement, spec.WeightsEqual
		r.Aggregation.Rule, r.Aggregation.AveragedUpdates = rule.MultiKrum, 2
	},
	"geometric median, weights in the mean": func(r *round.Config, _ *wire.Task) {
		r.AgentWeightRule, r.WeightPlacement = spec.WeightsSamples, spec.WeightInServerMean
		r.Aggregation.Rule = rule.GeometricMedian
	},
	"centered clipping, fedyogi": func(r *round.Config, _ *wire.Task) {
		optimized("fedyogi")(r, nil)
		r.Aggregation.Rule, r.Aggregation.ClippingRadius = rule.CenteredClipping, 0.05
	},
	"centered clipping, gradients": func(r *round.Config, t *wire.Task) {
		r.Aggregation.Rule, r.Aggregation.ClippingRadius = rule.CenteredClipping, 1
		t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.ExchangeGradient, 1
	},
	refuseAbove: func(r *round.Config, _ *wire.Task) {
		optimized("fedyogi")(r, nil)
		r.Aggregation.RefuseAboveFactor = 1.2
	},
	"fedavgm": func(r *round.Config, _ *wire.Task) {
		r.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.7, Momentum: 0.6, Tau: 1}
	},
	"fedadagrad": optimized("fedadagrad"),
	"fedadam":    optimized("fedadam"),
	"int8, fedprox": func(_ *round.Config, t *wire.Task) {
		t.Training.UpdateCodec, t.Training.Proximal = spec.CodecInt8, 0.3
	},
	"bfloat16, huber": func(_ *round.Config, t *wire.Task) {
		t.Training.UpdateCodec, t.Model.Risk, t.Model.HuberDelta = spec.CodecBFloat16, spec.LossHuber, 0.5
	},
	"samples, int4": func(r *round.Config, t *wire.Task) {
		r.AgentWeightRule, t.Training.UpdateCodec = spec.WeightsSamples, spec.CodecInt4
	},
	"signs, median": func(r *round.Config, t *wire.Task) {
		r.AgentWeightRule, r.Aggregation.Rule, t.Training.UpdateCodec = spec.WeightsEqual, rule.Median, spec.CodecSigns
	},
	"top_k": func(_ *round.Config, t *wire.Task) { t.Training.UpdateCodec = spec.TopKCodec(0.3) },
	"top_k, samples, refuse_above": func(r *round.Config, t *wire.Task) {
		r.AgentWeightRule, r.Aggregation.RefuseAboveFactor, t.Training.UpdateCodec = spec.WeightsSamples, 1.2,
			spec.TopKCodec(0.3)
	},
	"top_k, multi-krum, a network": func(r *round.Config, t *wire.Task) {
		network(t)
		r.AgentWeightRule, r.Aggregation.Rule, r.Aggregation.AveragedUpdates = spec.WeightsEqual, rule.MultiKrum, 2
		t.Training.UpdateCodec = spec.TopKCodec(0.1)
	},
	"feddec, top_k": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		t.Training.UpdateCodec = spec.TopKCodec(0.3)
	},
	"steps by E_k, straggling, noise": func(_ *round.Config, t *wire.Task) {
		t.Training.NormalizesStepSize, t.Training.StepTimeBudgetMillis, t.Training.LocalStepProbability = true, 2500,
			0.6
		t.Training.GradientNoise = spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.01}
	},
	"a network, a frozen layer, a schedule, all rows": func(_ *round.Config, t *wire.Task) {
		network(t)
		t.Model.FrozenTensors, t.Training.BatchSize = []string{"layer0.weight"}, 0
		decaying(t)
	},
	"gradients, int8, trimmed mean, noise, a schedule": func(r *round.Config, t *wire.Task) {
		r.AgentWeightRule, r.Aggregation = spec.WeightsEqual, rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.2}
		t.Training.ExchangeKind, t.Training.MaxLocalSteps, t.Training.UpdateCodec = spec.ExchangeGradient, 1,
			spec.CodecInt8
		t.Training.GradientNoise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 0.01}
		decaying(t)
	},
	"a layer of their own, fedprox, weights in the step": func(r *round.Config, t *wire.Task) {
		network(t)
		r.AgentWeightRule, t.Training.Proximal, t.Personal.PersonalTensors = spec.WeightsSamples, 0.3,
			[]string{"layer1"}
	},
	"a bias of their own, int8, fedyogi, noise": func(r *round.Config, t *wire.Task) {
		optimized("fedyogi")(r, nil)
		t.Training.UpdateCodec = spec.CodecInt8
		t.Training.GradientNoise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 0.01}
		t.Personal.PersonalTensors = []string{"layer0.bias"}
	},
	"ditto, steps by E_k, noise": func(_ *round.Config, t *wire.Task) {
		t.Training.NormalizesStepSize, t.Training.StepTimeBudgetMillis, t.Training.LocalStepProbability = true, 2500,
			0.6
		t.Training.GradientNoise = spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.01}
		t.Personal = wire.PersonalModelSettings{UsesDitto: true, DittoLambda: 0.3}
	},
	"feddec": feddec,
	"feddec, few gradients, int8": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		t.Training.StepTimeBudgetMillis, t.Training.UpdateCodec, t.Mixing.SnapshotCodec = 1500, spec.CodecInt8,
			spec.CodecInt8
	},
	"feddec, mixing at every third step, bfloat16": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		t.Training.MaxLocalSteps, t.Mixing.IntervalSteps, t.Mixing.SnapshotCodec = 6, 3, spec.CodecBFloat16
	},
	"feddec, a network, a schedule, fedprox, bfloat16": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		network(t)
		t.Model.FrozenTensors, t.Training.Proximal, t.Mixing.SnapshotCodec = []string{"layer1.bias"}, 0.3,
			spec.CodecBFloat16
		decaying(t)
	},
	"feddec, refuse_above, fedavgm, straggling": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		r.Aggregation.RefuseAboveFactor = 1.2
		r.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.7, Momentum: 0.6, Tau: 1}
		t.Training.LocalStepProbability = 0.6
	},
	"feddec, centered clipping": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		r.Aggregation.Rule, r.Aggregation.ClippingRadius = rule.CenteredClipping, 0.05
	},
	"feddec, clipped, bfloat16": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		r.MixingClipBound, t.Mixing.SnapshotCodec = 0.05, spec.CodecBFloat16
	},
	"feddec, endless": func(r *round.Config, t *wire.Task) {
		feddec(r, t)
		t.Mixing.HasEndlessBlocks, t.Mixing.SnapshotCodec = true, spec.CodecInt8
	},
}

func feddec(r *round.Config, t *wire.Task) {
	r.Algorithm, r.Sampling, r.AgentWeightRule = spec.FedDec, spec.SamplingWithReplacement, spec.WeightsEqual
	t.Training.NormalizesStepSize = false
	t.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotWaitMillis: 2000, SnapshotRetryMillis: 500,
		LateSnapshotMillis: 10_000,
		SnapshotCodec:      spec.CodecRaw}
}

// optimized returns a method that uses the named server optimiser with default settings.
func optimized(name string) func(r *round.Config, _ *wire.Task) {
	return func(r *round.Config, _ *wire.Task) {
		r.ServerOptimizer = optimizer.DefaultConfig()
		r.ServerOptimizer.Name = name
	}
}

// network adds a hidden layer, unless the plan already has a hidden layer.
func network(t *wire.Task) {
	if len(t.Model.HiddenUnits) == 0 {
		t.Model.HiddenUnits = []uint32{4}
	}
}

// decaying selects the decreasing step size 2/(μ_sc(γ+t)) for local step t. The initial step size equals the task's
// constant step size.
func decaying(t *wire.Task) {
	t.Training.StrongConvexity, t.Training.StepSizeDecayOffset = 0.05/t.Training.StepSize, 40
	t.Training.StepSize = 0
}
