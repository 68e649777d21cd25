package stop

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// Config configures when a run ends, in addition to its number of aggregations. A value of 0 disables a rule.
type Config struct {
	TargetRisk     float64 `yaml:"risk"`     // maximum risk of a model that ends the run
	TargetR2       float64 `yaml:"r2"`       // minimum R² on held-out data that ends the run
	TargetAccuracy float64 `yaml:"accuracy"` // minimum accuracy on held-out data that ends the run
	// Patience is the number of consecutive aggregations without an improvement of the risk after which the run ends.
	Patience int `yaml:"patience"`
	// MinImprovementShare is the minimum decrease of the risk for an improvement, relative to the best risk.
	MinImprovementShare float64       `yaml:"improvement"`
	TimeLimit           time.Duration `yaml:"time"`  // maximum duration since the run has a stopping rule
	ByteLimit           spec.ByteSize `yaml:"bytes"` // maximum bytes of updates and models transferred in the run
}

// DefaultConfig returns the configuration without a rule.
func DefaultConfig() Config { return Config{MinImprovementShare: 0.01} }

// IsEnabled reports whether a stopping rule is configured.
func (c *Config) IsEnabled() bool {
	return c.TargetRisk > 0 || c.TargetR2 > 0 || c.TargetAccuracy > 0 || c.Patience > 0 || c.TimeLimit > 0 ||
		c.ByteLimit > 0
}

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.Require(c.TargetRisk >= 0, "risk", "must not be negative, is %v (0 = no target)", c.TargetRisk)
	check.Require(c.TargetR2 >= 0 && c.TargetR2 <= 1, "r2", "must be 0 (no target) to 1, is %v", c.TargetR2)
	check.Require(c.TargetAccuracy >= 0 && c.TargetAccuracy <= 1, "accuracy", "must be 0 (no target) to 1, is %v",
		c.TargetAccuracy)
	check.Require(c.Patience >= 0, "patience", "must not be negative, is %d (0 = no limit)", c.Patience)
	check.Require(c.MinImprovementShare >= 0 && c.MinImprovementShare < 1, "improvement",
		"must be 0 or more and below 1, a share of the best risk, is %v", c.MinImprovementShare)
	check.Require(c.TimeLimit >= 0, "time", "must not be negative, is %s (0s = no limit)", c.TimeLimit)
	check.Require(c.ByteLimit >= 0, "bytes", "must not be negative, is %s (0B = no limit)", c.ByteLimit)
	return check.Err()
}
