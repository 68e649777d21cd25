package stop

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// Config says when a run ends, beside its number of aggregations. A value of 0 is no rule.
type Config struct {
	TargetRisk     float64 `yaml:"risk"`     // the run ends with a model whose risk is at most this
	TargetR2       float64 `yaml:"r2"`       // or whose R² on held-out data is at least this
	TargetAccuracy float64 `yaml:"accuracy"` // or whose accuracy on held-out data is
	// Patience is the number of aggregations after which the run ends, when none of them has improved the
	// risk.
	Patience int `yaml:"patience"`
	// MinImprovementShare is the share of the best risk by which a risk must be lower to count as an improvement.
	MinImprovementShare float64       `yaml:"improvement"`
	TimeLimit           time.Duration `yaml:"time"`  // since the run has a rule
	ByteLimit           spec.ByteSize `yaml:"bytes"` // of updates and models carried for the run
}

// DefaultConfig returns the configuration without a rule.
func DefaultConfig() Config { return Config{MinImprovementShare: 0.01} }

// IsEnabled reports whether there is a rule.
func (c *Config) IsEnabled() bool {
	return c.TargetRisk > 0 || c.TargetR2 > 0 || c.TargetAccuracy > 0 || c.Patience > 0 || c.TimeLimit > 0 ||
		c.ByteLimit > 0
}

// Validate returns all problems, joined, each a [*spec.FieldError].
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
