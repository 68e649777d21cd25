package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Config says how models are rolled out.
type Config struct {
	// Share of the agents that predict with a candidate first; empty = agents take each model when they see it.
	Share AgentShare `yaml:"rollout"`
	// FirstVersion is the version of a run before which no model is released, nor a candidate, unless the run is
	// finished.
	FirstVersion int `yaml:"first_version"`
	// MinDecidingAgents is of how many agents the residuals decide at least.
	MinDecidingAgents int `yaml:"devices"`
	// MinResiduals is how many labels each of them must have seen at least.
	MinResiduals int `yaml:"residuals"`
	// ErrorMargin is how much larger the mean square of a candidate's residuals may be than that of the released
	// model's, as a share of it, at the median agent.
	ErrorMargin float64 `yaml:"margin"`
	// TrialTimeout is the time after which a candidate is withdrawn that too few agents have judged.
	TrialTimeout time.Duration `yaml:"within"`
}

// AgentShare is a share as a text, such as 10%; empty = none.
type AgentShare string

// UnmarshalText reads a share above 0% and up to 100%, or nothing.
func (s *AgentShare) UnmarshalText(text []byte) error {
	*s = AgentShare(text)
	if x := s.Fraction(); *s != "" && !(x > 0 && x <= 1) {
		return fmt.Errorf("want a share above 0%% and up to 100%%, as 10%%, got %q", text)
	}
	return nil
}

// Fraction is the share as a fraction of 1; negative if it is no share.
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

// DefaultConfig returns the configuration without a rollout.
func DefaultConfig() Config {
	return Config{FirstVersion: 20, MinDecidingAgents: 3, MinResiduals: 24, ErrorMargin: 0.05,
		TrialTimeout: 7 * 24 * time.Hour}
}

// IsEnabled reports whether models are rolled out.
func (c *Config) IsEnabled() bool { return c.Share != "" }

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	if !c.IsEnabled() {
		return nil
	}
	var check spec.ProblemList
	x := c.Share.Fraction()
	check.Require(x > 0 && x <= 1, "rollout", "must be above 0%% and up to 100%%, is %s", c.Share)
	check.Require(c.FirstVersion >= 0, "first_version", "must not be negative, is %d", c.FirstVersion)
	check.Require(c.MinDecidingAgents >= 1, "devices", "must be at least 1, is %d", c.MinDecidingAgents)
	check.Require(c.MinResiduals >= 1, "residuals", "must be at least 1, is %d", c.MinResiduals)
	check.Require(c.ErrorMargin >= 0 && c.ErrorMargin <= 10, "margin",
		"must be 0 to 10, a share of the mean square, is %v",
		c.ErrorMargin)
	check.Require(c.TrialTimeout > MinTrialDuration, "within",
		"must be longer than %s, in which all agents are heard once, is %s",
		MinTrialDuration,
		c.TrialTimeout)
	return check.Err()
}

// mayReleaseVersion reports whether a model may be released, or a candidate.
func (c *Config) mayReleaseVersion(version wire.ModelVersion, finished bool) bool {
	return finished || version >= wire.ModelVersion(c.FirstVersion)
}
