package round_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

func TestConfigValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*round.Config)
		want   string // configuration keys of the expected errors, in order
	}{
		{"default", func(*round.Config) {}, ""},
		{"smallest", func(c *round.Config) {
			c.Participants, c.Quorum, c.Gather.MinAgents, c.Gather.HelloSpread = 1, 1, 1, 0
		}, ""},
		{"full participation", func(c *round.Config) { c.Quorum = 6 }, ""},
		{"with replacement", func(c *round.Config) {
			c.Sampling, c.Gather.MinAgents = spec.SamplingWithReplacement,
				1
		}, ""},
		{"target", func(c *round.Config) { c.Gather.TargetAgents = 6 }, ""},
		{"no participants", func(c *round.Config) { c.Participants = 0 }, "participants quorum"},
		{"no quorum", func(c *round.Config) { c.Quorum = 0 }, "quorum"},
		{"quorum above participants", func(c *round.Config) { c.Quorum, c.Gather.MinAgents = 7, 7 }, "quorum"},
		{"more draws than memory", func(c *round.Config) {
			c.Participants, c.ExtraParticipants = math.MaxInt,
				math.MaxInt
		},
			"participants over_select"},
		{"negative over-selection", func(c *round.Config) { c.ExtraParticipants = -1 }, "over_select"},
		{"over-selection with replacement",
			func(c *round.Config) { c.ExtraParticipants, c.Sampling = 1, spec.SamplingWithReplacement }, "over_select"},
		{"sampling", func(c *round.Config) { c.Sampling = "some" }, "sampling"},
		{"weights", func(c *round.Config) { c.AgentWeightRule = "" }, "weights"},
		{"weighting", func(c *round.Config) { c.WeightPlacement = "both" }, "weighting"},
		{"rounds", func(c *round.Config) { c.MaxAggregations = -1 }, "rounds"},
		{"no minimum", func(c *round.Config) { c.Gather.MinAgents, c.Sampling = 0, spec.SamplingWithReplacement },
			"gather.minimum"},
		{"minimum under the quorum", func(c *round.Config) { c.Gather.MinAgents = 3 }, "gather.minimum"},
		{"target under the minimum", func(c *round.Config) { c.Gather.TargetAgents = 5 }, "gather.target"},
		{"negative target", func(c *round.Config) { c.Gather.TargetAgents = -1 }, "gather.target"},
		{"no window", func(c *round.Config) { c.Gather.WindowLength, c.Gather.HelloSpread = 0, 0 }, "gather.within"},
		{"window beyond the wire", func(c *round.Config) { c.Gather.WindowLength = 2000 * time.Hour }, "gather.within"},
		{"spread as long as the window", func(c *round.Config) { c.Gather.HelloSpread = c.Gather.WindowLength },
			"gather.spread"},
		{"negative spread", func(c *round.Config) { c.Gather.HelloSpread = -1 }, "gather.spread"},
		{"no deadline", func(c *round.Config) { c.RoundTimeout = 0 }, "deadline"},
		{"deadline beyond the wire", func(c *round.Config) { c.RoundTimeout = 1200 * time.Hour }, "deadline"},
		{"negative pause", func(c *round.Config) { c.PauseBetweenRounds = -time.Second }, "pause"},
		{"never invited again", func(c *round.Config) { c.ReinviteInterval = 0 }, "invite_every"},
		{"empty", func(c *round.Config) { *c = round.Config{} },
			"algorithm participants quorum sampling weights weighting aggregation.rule server_optimizer.name " +
				"server_optimizer.tau gather.minimum gather.within deadline evaluation.min_rows " +
				"evaluation.min_agents invite_every"},
		{"a trim that cuts all", func(c *round.Config) {
			c.Aggregation = rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.5}
		}, "aggregation.trim"},
		{"momentum 1", func(c *round.Config) { c.ServerOptimizer.Name, c.ServerOptimizer.Momentum = "fedavgm", 1 },
			"server_optimizer.momentum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := round.DefaultConfig()
			tt.change(&cfg)
			before := cfg
			err := cfg.Validate()
			if !reflect.DeepEqual(cfg, before) {
				t.Error("Validate changed the configuration")
			}
			if got := keys(t, err); got != tt.want {
				t.Errorf("problems with %q, want %q:\n%v", got, tt.want, err)
			}
		})
	}
}

// keys returns the configuration keys of joined field errors. It fails the test if an error has no message.
func keys(t *testing.T, err error) string {
	if err == nil {
		return ""
	}
	var all []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		field := (*spec.FieldError)(nil)
		if !errors.As(e, &field) || field.Key == "" || !strings.Contains(e.Error(), field.Key+": ") ||
			field.Problem == "" {
			t.Errorf("%#v is not a field's problem", e)
			continue
		}
		all = append(all, field.Key)
	}
	return strings.Join(all, " ")
}

// TestRobust checks that the default aggregation is the exact mean. It also checks that UsesRobustAggregation sets
// bounds only where the configuration has none.
func TestRobust(t *testing.T) {
	for _, tt := range []struct {
		robust            bool
		clip, refuse      float64
		wantClip, wantOut float64
	}{
		{false, 0, 0, 0, 0}, {false, 0, 50, 0, 50}, {true, 0, 0, 3, 100}, {true, 5, 0, 5, 100}, {true, 0, 20, 3, 20},
	} {
		cfg := round.DefaultConfig()
		cfg.UsesRobustAggregation, cfg.Aggregation.ClipAboveFactor, cfg.Aggregation.RefuseAboveFactor = tt.robust,
			tt.clip, tt.refuse
		want := rule.DefaultConfig()
		want.ClipAboveFactor, want.RefuseAboveFactor = tt.wantClip, tt.wantOut
		if got := cfg.EffectiveAggregation(); got != want {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}
