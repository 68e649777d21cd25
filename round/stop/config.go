package stop

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// Config configures when a run ends, in addition to its number of aggregations. A value of 0 disables a rule.
type Config struct {
	TargetRisk     float64 `yaml:"risk"`     // risk at or below which the run ends
	TargetR2       float64 `yaml:"r2"`       // R² on held-out data at or above which the run ends
	TargetAccuracy float64 `yaml:"accuracy"` // accuracy on held-out data at or above which the run ends
	// Patience is the number of consecutive aggregations without an improvement of the risk (mean loss) after which the
	// run ends.
	Patience int `yaml:"patience"`
	// MinImprovementShare is the minimum decrease of the risk that counts as an improvement, as a fraction of the
	// lowest risk so far.
	MinImprovementShare float64 `yaml:"improvement"`
	// maximum duration of the run, counted from the time at which the first rule was configured
	TimeLimit time.Duration `yaml:"time"`
	// maximum number of bytes of updates and models that the run may transfer
	ByteLimit spec.ByteSize `yaml:"bytes"`
}

// DefaultConfig returns a configuration without stopping rules.
func DefaultConfig() Config { return Config{MinImprovementShare: 0.01} }

// IsEnabled reports whether a stopping rule is configured.
func (c *Config) IsEnabled() bool {
	return c.TargetRisk > 0 || c.TargetR2 > 0 || c.TargetAccuracy > 0 || c.Patience > 0 || c.TimeLimit > 0 ||
		c.ByteLimit > 0
}

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.Require(c.TargetRisk >= 0, "risk", "must not be negative (0 = no target), but is %v", c.TargetRisk)
	check.Require(c.TargetR2 >= 0 && c.TargetR2 <= 1, "r2", "must be between 0 (no target) and 1, but is %v",
		c.TargetR2)
	check.Require(c.TargetAccuracy >= 0 && c.TargetAccuracy <= 1, "accuracy",
		"must be between 0 (no target) and 1, but is %v",
		c.TargetAccuracy)
	check.Require(c.Patience >= 0, "patience", "must not be negative (0 = no limit), but is %d", c.Patience)
	check.Require(c.MinImprovementShare >= 0 && c.MinImprovementShare < 1, "improvement",
		"must be at least 0 and below 1 (a fraction of the lowest risk), but is %v", c.MinImprovementShare)
	check.Require(c.TimeLimit >= 0, "time", "must not be negative (0s = no limit), but is %s", c.TimeLimit)
	check.Require(c.ByteLimit >= 0, "bytes", "must not be negative (0B = no limit), but is %s", c.ByteLimit)
	return check.Err()
}
