package evaluation

import "github.com/fedmesh/fedmesh/spec"

// Config configures the evaluation of models by agents on their held-out rows.
type Config struct {
	// evaluated versions: multiples of this number, and the last of a run; 0 means none
	VersionInterval int `yaml:"every"`
	MinRows         int `yaml:"min_rows"` // minimum number of held-out rows for an agent to report a result
	// MinAgents is the minimum number of agents for a published result, or all present agents if these are fewer.
	MinAgents int `yaml:"min_agents"`
}

// DefaultConfig returns the configuration without evaluations.
func DefaultConfig() Config { return Config{MinRows: 20, MinAgents: 5} }

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.Require(c.VersionInterval >= 0 && c.VersionInterval <= 1<<30, "every",
		"must be 0 (no evaluation) to %d, is %d",
		1<<30, c.VersionInterval)
	check.Require(c.MinRows >= 1 && c.MinRows <= 1<<30, "min_rows", "must be 1 to %d, is %d", 1<<30, c.MinRows)
	check.Require(c.MinAgents >= 1 && c.MinAgents <= 1<<30, "min_agents", "must be 1 to %d, is %d", 1<<30, c.MinAgents)
	return check.Err()
}
