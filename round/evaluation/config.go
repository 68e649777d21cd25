package evaluation

import "github.com/fedmesh/fedmesh/spec"

// Config configures the evaluation of models by agents on their held-out rows.
type Config struct {
	// number of model versions from one evaluation to the next; the last model of a run is evaluated too; 0 disables
	// evaluation
	VersionInterval int `yaml:"every"`
	// minimum number of held-out rows with which an agent reports a result
	MinRows int `yaml:"min_rows"`
	// MinAgents is the number of agents that must report before the coordinator publishes a result. If fewer agents are
	// present, all present agents must report.
	MinAgents int `yaml:"min_agents"`
}

// DefaultConfig returns a configuration in which evaluation is disabled.
func DefaultConfig() Config { return Config{MinRows: 20, MinAgents: 5} }

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.Require(c.VersionInterval >= 0 && c.VersionInterval <= 1<<30, "every",
		"must be between 0 (no evaluation) and %d, but is %d",
		1<<30, c.VersionInterval)
	check.Require(c.MinRows >= 1 && c.MinRows <= 1<<30, "min_rows", "must be between 1 and %d, but is %d", 1<<30,
		c.MinRows)
	check.Require(c.MinAgents >= 1 && c.MinAgents <= 1<<30, "min_agents", "must be between 1 and %d, but is %d", 1<<30,
		c.MinAgents)
	return check.Err()
}
