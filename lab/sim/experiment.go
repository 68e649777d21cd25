package sim

import (
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// StraggleUnit says what an agent misses that does not respond.
type StraggleUnit string

// The ways to straggle.
const (
	StraggleStep  StraggleUnit = "step"  // a local step, the others scaled by 1/δ_k (2nd-order (9))
	StraggleRound StraggleUnit = "round" // the round; the server averages over those that respond, with no 1/δ_k
)

// Precision is the type of parameters and samples.
type Precision string

// The precisions.
const (
	Float32 Precision = "float32" // as the daemons
	Float64 Precision = "float64"
)

// Experiment is all that decides a simulation: the same experiment gives the same bits on one build and type of
// processor, at any number of cores.
type Experiment struct {
	Name   string `yaml:"name" json:"name"`
	Seed   uint64 `yaml:"seed" json:"seed"`
	Runs   int    `yaml:"runs" json:"runs"`     // independent runs; intervals are over them
	Rounds int    `yaml:"rounds" json:"rounds"` // aggregations; of feddec, T, the local steps
	// rounds from one record to the next; 0 = some 200 records in all
	Record    int       `yaml:"record" json:"record"`
	Precision Precision `yaml:"precision" json:"precision"` // float32 or float64

	Data data.Spec `yaml:"data" json:"data"`

	Algorithm spec.Algorithm `yaml:"algorithm" json:"algorithm"`
	// K; 0 = as many as a column of the data names
	Agents       int                      `yaml:"agents" json:"agents"`
	Participants Participants             `yaml:"participants" json:"participants"` // L, or a file
	Sampling     spec.ParticipantSampling `yaml:"sampling" json:"sampling"`
	LocalSteps   PerAgent                 `yaml:"local_steps" json:"local_steps"` // E_k
	// B_k; 0 = the exact gradient over an agent's rows
	BatchSize PerAgent          `yaml:"batch_size" json:"batch_size"`
	StepSize  spec.StepSize     `yaml:"step_size" json:"step_size"`
	Exchange  spec.ExchangeKind `yaml:"exchange" json:"exchange"`
	Codec     spec.Codec        `yaml:"codec" json:"codec"`     // of what agents send; packed elements are float32 values
	Weights   PerAgent          `yaml:"weights" json:"weights"` // p_k in any scale; one number = equal
	// WeighRows takes p_k in proportion to the agents' rows instead.
	WeighRows bool                 `yaml:"weigh_rows" json:"weigh_rows"`
	Weighting spec.WeightPlacement `yaml:"weighting" json:"weighting"`
	// Aggregation and ServerOptimizer are those of a coordinator's round.
	Aggregation     rule.Config      `yaml:"aggregation" json:"aggregation"`
	ServerOptimizer optimizer.Config `yaml:"server_optimizer" json:"server_optimizer"`

	// Attack is what some of the agents send in the place of their updates, in the words of package attack; "" = all
	// are honest. Attackers is how many; each run draws its own.
	Attack    string `yaml:"attack" json:"attack"`
	Attackers int    `yaml:"attackers" json:"attackers"`

	Response      Response             `yaml:"response" json:"response"`
	Proximal      float64              `yaml:"proximal" json:"proximal"` // ρ_p of FedProx
	GradientNoise spec.GradientNoise   `yaml:"gradient_noise" json:"gradient_noise"`
	Personal      spec.PersonalOptions `yaml:"personal" json:"personal"` // what of a model is an agent's own
	// Finetune makes the model of a record each agent's own, where agents hold rows out to score it on.
	Finetune spec.FinetuneOptions `yaml:"finetune" json:"finetune"`
	Mixing   Mixing               `yaml:"mixing" json:"mixing"`

	// Dump is a folder for the instances and all that is drawn; Load one from which they come instead. See [LoadDump].
	Dump string `yaml:"-" json:"-"`
	Load string `yaml:"-" json:"-"`

	// Trajectory, if set, is told where the first run stands at its start and after each round. An error of it ends the
	// run.
	Trajectory func(State) error `yaml:"-" json:"-"`

	// RecordMeanIterate records also the excess risk of the mean of all agents' local iterates, over all local steps
	// (notes (4)); all agents take part with the same number of steps.
	RecordMeanIterate bool `yaml:"shadow" json:"shadow"`
}

// Response is who responds.
type Response struct {
	Probability  PerAgent     `yaml:"probability" json:"probability"` // δ_k
	StraggleUnit StraggleUnit `yaml:"per" json:"per"`
}

// Mixing is the part of an experiment that only FedDec has.
type Mixing struct {
	ServerEvery int `yaml:"server_every" json:"server_every"` // H
	// FirstBlock is the local steps before the first server round: 0 is H−1, as in feddec Algorithm 1, which counts t
	// from 1; the daemons take H.
	FirstBlock int `yaml:"first_block" json:"first_block"`
	// Gradients is how many of the H local steps take a gradient, per agent: E_k, spread over the block and scaled by
	// H/E_k; 0 = all.
	Gradients   PerAgent            `yaml:"gradients" json:"gradients"`
	Every       int                 `yaml:"every" json:"every"` // local steps from one mixing to the next
	Codec       spec.Codec          `yaml:"codec" json:"codec"` // of what neighbours send to each other
	Clip        float64             `yaml:"clip" json:"clip"`   // τ: no flow is of vectors farther apart; 0 = no bound
	Graph       GraphKind           `yaml:"graph" json:"graph"`
	Fresh       bool                `yaml:"fresh" json:"fresh"`             // a new graph for every run
	Radius      float64             `yaml:"radius" json:"radius"`           // of a geographic graph in the unit square
	Probability float64             `yaml:"probability" json:"probability"` // of an edge of a random graph
	File        string              `yaml:"file" json:"file"`               // of a graph: JSON, or a CSV list of edges
	Weights     spec.EdgeWeightRule `yaml:"weights" json:"weights"`
	LinkUp      float64             `yaml:"link_up" json:"link_up"` // probability of each link in each step
}

// GraphKind is where the graph comes from.
type GraphKind string

// The graphs. Geographic and random ones are drawn until they are connected.
const (
	NoGraph    GraphKind = "none" // W = I: spec.FedAvg as feddec compares itself with
	Geographic GraphKind = "geographic"
	Random     GraphKind = "random"
	Ring       GraphKind = "ring"
	Complete   GraphKind = "complete"
	GraphFile  GraphKind = "file"
)

// Default is an experiment on the lecture's Lab #1, but for the number of agents.
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
