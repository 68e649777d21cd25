package evaluation

import "github.com/fedmesh/fedmesh/spec"

// Config says which models agents evaluate on the rows that they hold out.
type Config struct {
	VersionInterval int `yaml:"every"`    // each model whose version is a multiple of it, and the last of a run; 0 = none
	MinRows         int `yaml:"min_rows"` // an agent that holds out fewer says nothing of a model
	// MinAgents is the smallest number of agents whose results are published, or all agents that are present if these
	// are fewer.
	MinAgents int `yaml:"min_agents"`
}

// DefaultConfig returns the configuration without evaluations.
func DefaultConfig() Config { return Config{MinRows: 20, MinAgents: 5} }

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.Require(c.VersionInterval >= 0 && c.VersionInterval <= 1<<30, "every",
		"must be 0 (no evaluation) to %d, is %d",
		1<<30, c.VersionInterval)
	check.Require(c.MinRows >= 1 && c.MinRows <= 1<<30, "min_rows", "must be 1 to %d, is %d", 1<<30, c.MinRows)
	check.Require(c.MinAgents >= 1 && c.MinAgents <= 1<<30, "min_agents", "must be 1 to %d, is %d", 1<<30, c.MinAgents)
	return check.Err()
}
