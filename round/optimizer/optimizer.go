package optimizer

import (
	"maps"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// Optimizer turns the aggregated update of a round into the step of the model.
type Optimizer interface {
	// StateVectorNames returns the names of the optimiser's state vectors, each of the model's length d. The
	// coordinator saves and restores these vectors with the model.
	StateVectorNames() []string
	// InitState sets state to the optimiser's state before the first round.
	InitState(state [][]float64)
	// Step replaces the aggregated update D_i in d by the step w_i − w_{i−1} of the model, and updates state. D_i
	// points towards the next model, like a negative gradient. Step must preserve infinite elements and NaN, so that
	// the coordinator rejects the model.
	Step(d []float64, state [][]float64)
}

// Config is the section server_optimizer in the configuration of a coordinator's round or an experiment.
type Config struct {
	Name         string  `yaml:"name" json:"name"`
	LearningRate float64 `yaml:"learning_rate" json:"learning_rate"`
	Momentum     float64 `yaml:"momentum" json:"momentum"` // momentum β of the optimiser fedavgm
	Beta1        float64 `yaml:"beta1" json:"beta1"`
	Beta2        float64 `yaml:"beta2" json:"beta2"`
	Tau          float64 `yaml:"tau" json:"tau"`
}

// None is the name of the optimiser that applies the aggregated update unchanged.
const None = "none"

type identityOptimizer struct{}

func (identityOptimizer) StateVectorNames() []string  { return nil }
func (identityOptimizer) InitState([][]float64)       {}
func (identityOptimizer) Step([]float64, [][]float64) {}

// DefaultConfig returns the configuration without an optimiser. The other parameters have their default values.
func DefaultConfig() Config {
	return Config{Name: None, Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Tau: 0.001}
}

// optimizerEntry describes an optimiser in optimizerByName.
type optimizerEntry struct {
	newOptimizer        func(Config) Optimizer
	defaultLearningRate float64 // learning rate that is used if the configuration contains none
}

var optimizerByName = map[string]optimizerEntry{
	None:         {func(Config) Optimizer { return identityOptimizer{} }, 0},
	"fedavgm":    {newFedAvgM, 1},
	"fedadagrad": {newFedAdagrad, 0.1},
	"fedadam":    {newFedAdam, 0.1},
	"fedyogi":    {newFedYogi, 0.1},
}

// Names returns the optimisers' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(optimizerByName)) }

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.ProblemList
	spec.RequireOneOf(&k, "name", c.Name, Names()...)
	k.Require(c.Name != None || c.LearningRate == 0, "learning_rate",
		"is %v, but no server optimiser is configured: set server_optimizer.name or remove this key", c.LearningRate)
	k.Require(c.LearningRate >= 0 && !math.IsInf(c.LearningRate, 1), "learning_rate",
		"must be finite and positive, or 0 for the optimiser's default, but is %v", c.LearningRate)
	fraction := func(key string, x float64) {
		k.Require(x >= 0 && x < 1, key, "must be at least 0 and below 1, but is %v", x)
	}
	fraction("momentum", c.Momentum)
	fraction("beta1", c.Beta1)
	fraction("beta2", c.Beta2)
	k.Require(c.Tau > 0 && !math.IsInf(c.Tau, 1), "tau", "must be finite and positive, but is %v", c.Tau)
	return k.Err()
}

// New returns the optimiser of a valid configuration.
func New(c Config) Optimizer {
	e := optimizerByName[c.Name]
	if c.LearningRate == 0 {
		c.LearningRate = e.defaultLearningRate
	}
	return e.newOptimizer(c)
}

// NewState returns the state of an optimiser before the first round, for models of length d.
func NewState(o Optimizer, d int) [][]float64 {
	state := make([][]float64, len(o.StateVectorNames()))
	for i := range state {
		state[i] = make([]float64, d)
	}
	o.InitState(state)
	return state
}
