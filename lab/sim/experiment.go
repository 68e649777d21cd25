package sim

import (
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// StraggleUnit is the amount of work that an agent skips when it does not respond.
type StraggleUnit string

// Units of work that an agent can skip.
const (
	// StraggleStep skips a local step. The executed steps are scaled by 1/δ_k, where δ_k is the probability of a
	// response (paper on second-order guarantees, eq. (9)).
	StraggleStep StraggleUnit = "step"
	// StraggleRound skips a whole round. The server averages the received updates without the factor 1/δ_k, where δ_k
	// is the probability of a response.
	StraggleRound StraggleUnit = "round"
)

// Precision is the number type of parameters and samples.
type Precision string

// Supported precisions.
const (
	Float32 Precision = "float32" // precision of the daemons
	Float64 Precision = "float64"
)

// Experiment describes a simulation completely. The same experiment gives the same bits on any number of cores, for one
// build and processor type.
type Experiment struct {
	Name   string `yaml:"name" json:"name"`
	Seed   uint64 `yaml:"seed" json:"seed"`
	Runs   int    `yaml:"runs" json:"runs"`     // independent runs, over which confidence intervals are computed
	Rounds int    `yaml:"rounds" json:"rounds"` // number of aggregations; for FedDec, the number of local steps
	// Record is the number of rounds between two records; 0 means about 200 records in all.
	Record    int       `yaml:"record" json:"record"`
	Precision Precision `yaml:"precision" json:"precision"` // float32 or float64

	Data data.Spec `yaml:"data" json:"data"`

	Algorithm spec.Algorithm `yaml:"algorithm" json:"algorithm"`
	// Agents is the number K of agents; 0 means one for each name in a column of the data.
	Agents int `yaml:"agents" json:"agents"`
	// Participants is the number of participants per round, or a file that lists them.
	Participants Participants             `yaml:"participants" json:"participants"`
	Sampling     spec.ParticipantSampling `yaml:"sampling" json:"sampling"`
	// number of local steps E_k of each agent k per round
	LocalSteps PerAgent `yaml:"local_steps" json:"local_steps"`
	// BatchSize is the number of rows that each agent uses per local step. Zero means all rows of the agent.
	BatchSize PerAgent          `yaml:"batch_size" json:"batch_size"`
	StepSize  spec.StepSize     `yaml:"step_size" json:"step_size"`
	Exchange  spec.ExchangeKind `yaml:"exchange" json:"exchange"`
	Codec     spec.Codec        `yaml:"codec" json:"codec"` // codec of updates
	// Weights is the weight of each agent, in any scale. A single number means equal weights.
	Weights PerAgent `yaml:"weights" json:"weights"`
	// WeighRows weights the agents by their numbers of rows instead of Weights.
	WeighRows bool                 `yaml:"weigh_rows" json:"weigh_rows"`
	Weighting spec.WeightPlacement `yaml:"weighting" json:"weighting"`
	// Aggregation and ServerOptimizer have the same meaning as for the coordinator.
	Aggregation     rule.Config      `yaml:"aggregation" json:"aggregation"`
	ServerOptimizer optimizer.Config `yaml:"server_optimizer" json:"server_optimizer"`

	// Attack names the attack of dishonest agents, as in package attack; "" means all agents are honest. Attackers is
	// the number of dishonest agents. Each run draws a new set.
	Attack    string `yaml:"attack" json:"attack"`
	Attackers int    `yaml:"attackers" json:"attackers"`

	Response Response `yaml:"response" json:"response"`
	// factor of the proximal term in the algorithm FedProx
	Proximal      float64              `yaml:"proximal" json:"proximal"`
	GradientNoise spec.GradientNoise   `yaml:"gradient_noise" json:"gradient_noise"`
	Personal      spec.PersonalOptions `yaml:"personal" json:"personal"` // personal part of each agent's model
	// Finetune fine-tunes the recorded model for each agent before it is scored on the agent's held-out rows.
	Finetune spec.FinetuneOptions `yaml:"finetune" json:"finetune"`
	Mixing   Mixing               `yaml:"mixing" json:"mixing"`

	// Dump is the folder to which instances and draws are written. Load is the folder from which they are read. See
	// [LoadDump].
	Dump string `yaml:"-" json:"-"`
	Load string `yaml:"-" json:"-"`

	// Trajectory, if set, is called with the state of the first run, once at the start and then after each round. If it
	// returns an error, the simulation ends.
	Trajectory func(State) error `yaml:"-" json:"-"`

	// RecordMeanIterate also records the excess risk of the mean of all agents' local iterates, over all local steps
	// (Renard's notes, inequality (4)). All agents must participate in each round, with the same number of local steps.
	RecordMeanIterate bool `yaml:"shadow" json:"shadow"`
}

// Response describes the probability that an agent responds.
type Response struct {
	Probability  PerAgent     `yaml:"probability" json:"probability"` // probability δ_k that agent k responds
	StraggleUnit StraggleUnit `yaml:"per" json:"per"`
}

// Mixing holds the options that only FedDec has.
type Mixing struct {
	ServerEvery int `yaml:"server_every" json:"server_every"` // number H of local steps between two server rounds
	// FirstBlock is the number of local steps before the first server round. Zero means ServerEvery−1 steps, as in
	// Algorithm 1 of the FedDec paper, which counts iterations from 1. The daemons use ServerEvery steps.
	FirstBlock int `yaml:"first_block" json:"first_block"`
	// Gradients is the number E_k of local steps per block in which agent k computes a gradient. A block has H =
	// ServerEvery local steps. The E_k steps are spread evenly over the block and scaled by H/E_k. Zero means that the
	// agent computes a gradient in all steps.
	Gradients PerAgent   `yaml:"gradients" json:"gradients"`
	Every     int        `yaml:"every" json:"every"` // local steps between two mixing steps
	Codec     spec.Codec `yaml:"codec" json:"codec"` // codec of snapshots to neighbours
	// Clip is the limit to which the distance between the parameters of two neighbours is clipped. Zero means no limit.
	Clip        float64             `yaml:"clip" json:"clip"`
	Graph       GraphKind           `yaml:"graph" json:"graph"`
	Fresh       bool                `yaml:"fresh" json:"fresh"`             // true to draw a new graph for every run
	Radius      float64             `yaml:"radius" json:"radius"`           // radius of a geographic graph
	Probability float64             `yaml:"probability" json:"probability"` // edge probability of a random graph
	File        string              `yaml:"file" json:"file"`               // graph file: JSON, or CSV list of edges
	Weights     spec.EdgeWeightRule `yaml:"weights" json:"weights"`
	LinkUp      float64             `yaml:"link_up" json:"link_up"` // probability that a link is up in a step
}

// GraphKind is the method by which the mixing graph is created.
type GraphKind string

// Kinds of mixing graphs. Geographic and random graphs are drawn until the graph is connected.
const (
	NoGraph    GraphKind = "none" // no mixing (W = I), which makes FedDec equal to FedAvg
	Geographic GraphKind = "geographic"
	Random     GraphKind = "random"
	Ring       GraphKind = "ring"
	Complete   GraphKind = "complete"
	GraphFile  GraphKind = "file"
)

// Default returns an experiment like Lab #1 of the lecture, but with a different number of agents.
func Default() Experiment {
	return Experiment{
		Name: "experiment", Seed: 1, Runs: 10, Rounds: 1000, Precision: Float64,
		Data: data.DefaultSpec(), Algorithm: spec.FedAvg, Sampling: spec.SamplingWithoutReplacement,
		LocalSteps: Each(1), BatchSize: Each(1), StepSize: spec.StepSize{Constant: 0.01, NormalizesStepSize: true},
		Exchange: spec.ExchangeParameters, Codec: spec.CodecRaw,
		Weights: Each(1), Weighting: spec.WeightInStepSize,
		Aggregation: rule.DefaultConfig(), ServerOptimizer: optimizer.DefaultConfig(),
		Response:      Response{Probability: Each(1), StraggleUnit: StraggleStep},
		GradientNoise: spec.GradientNoise{Law: spec.NoiseNone}, Personal: spec.DefaultPersonalOptions(),
		Mixing: Mixing{ServerEvery: 10, Gradients: Each(0), Every: 1, Codec: spec.CodecRaw, Graph: NoGraph,
			Radius: 0.35, Probability: 0.3, Weights: spec.EdgeWeightsBestConstant, LinkUp: 1},
	}
}
