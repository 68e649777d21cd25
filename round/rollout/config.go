package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures the rollout of models for predictions, first to a share of the agents and then to all.
type Config struct {
	// Share is the share of agents that first try a new model (the candidate). If Share is empty, all agents use each
	// new model at once.
	Share AgentShare `yaml:"rollout"`
	// FirstVersion is the first model version of a run that may be released or become a candidate. The limit does not
	// apply after the run has finished.
	FirstVersion int `yaml:"first_version"`
	// MinDecidingAgents is the minimum number of agents whose residuals decide about a candidate.
	MinDecidingAgents int `yaml:"devices"`
	// MinResiduals is the minimum number of labelled rows that an agent needs to take part in the decision about a
	// candidate.
	MinResiduals int `yaml:"residuals"`
	// ErrorMargin is the tolerated relative increase of the mean squared prediction error, from the released model to
	// the candidate, at the median agent.
	ErrorMargin float64 `yaml:"margin"`
	// TrialTimeout is the time after which a candidate with too few reports is withdrawn.
	TrialTimeout time.Duration `yaml:"within"`
}

// AgentShare is a share of the agents in percent as text, such as "10%". An empty text means no agents.
type AgentShare string

// UnmarshalText parses a share above 0% and up to 100%, or an empty text.
func (s *AgentShare) UnmarshalText(text []byte) error {
	*s = AgentShare(text)
	if x := s.Fraction(); *s != "" && !(x > 0 && x <= 1) {
		return fmt.Errorf("the share must be above 0%% and at most 100%%, such as 10%%, but is %q", text)
	}
	return nil
}

// Fraction returns the share as a fraction between 0 and 1, or a negative number if the text is invalid.
func (s AgentShare) Fraction() float64 {
	if s == "" {
		return 0
	}
	digits, percent := strings.CutSuffix(string(s), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !percent {
		return -1
	}
	return x / 100
}

// DefaultConfig returns a configuration that disables the staged release of models.
func DefaultConfig() Config {
	return Config{FirstVersion: 20, MinDecidingAgents: 3, MinResiduals: 24, ErrorMargin: 0.05,
		TrialTimeout: 7 * 24 * time.Hour}
}

// IsEnabled reports whether the staged release of models is enabled.
func (c *Config) IsEnabled() bool { return c.Share != "" }

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	if !c.IsEnabled() {
		return nil
	}
	var check spec.ProblemList
	x := c.Share.Fraction()
	check.Require(x > 0 && x <= 1, "rollout", "must be above 0%% and at most 100%%, but is %s", c.Share)
	check.Require(c.FirstVersion >= 0, "first_version", "must not be negative, but is %d", c.FirstVersion)
	check.Require(c.MinDecidingAgents >= 1, "devices", "must be at least 1, but is %d", c.MinDecidingAgents)
	check.Require(c.MinResiduals >= 1, "residuals", "must be at least 1, but is %d", c.MinResiduals)
	check.Require(c.ErrorMargin >= 0 && c.ErrorMargin <= 10, "margin",
		"must be between 0 and 10 (a fraction of the mean squared residual), but is %v",
		c.ErrorMargin)
	check.Require(c.TrialTimeout > MinTrialDuration, "within",
		"must be longer than %s, in which every agent sends one report, but is %s",
		MinTrialDuration,
		c.TrialTimeout)
	return check.Err()
}

// mayReleaseVersion reports whether a version is late enough to be released or to become a candidate.
func (c *Config) mayReleaseVersion(version wire.ModelVersion, finished bool) bool {
	return finished || version >= wire.ModelVersion(c.FirstVersion)
}
