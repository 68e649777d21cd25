package round

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/round/schedule"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Config is what the coordinator's machine needs to know. Counts are of agents.
type Config struct {
	Algorithm    spec.Algorithm `yaml:"algorithm"`
	Participants int            `yaml:"participants"` // L
	// fewest draws with an update that a round may close with at its deadline
	Quorum            int                  `yaml:"quorum"`
	ExtraParticipants int                  `yaml:"over_select"` // invited beyond L; bends uniform sampling towards fast agents
	Sampling          spec.Sampling        `yaml:"sampling"`
	AgentWeightRule   spec.AgentWeightRule `yaml:"weights"`
	WeightPlacement   spec.WeightPlacement `yaml:"weighting"`
	// Robust bounds the effect of a single agent on the model, at the price of a bias against unusual data: see Rule.
	Robust bool `yaml:"robust"`
	// Aggregation says how the updates become the fold, ServerOptimizer how the fold becomes the model's step.
	Aggregation     rule.Config       `yaml:"aggregation"`
	ServerOptimizer optimizer.Config  `yaml:"server_optimizer"`
	MaxAggregations int               `yaml:"rounds"` // aggregations until the run is finished; 0 = without end
	Seed            uint64            `yaml:"seed"`
	Gather          GatherConfig      `yaml:"gather"`
	Deadline        time.Duration     `yaml:"deadline"` // of a round, from its announcement
	Pause           time.Duration     `yaml:"pause"`    // between rounds
	InviteEvery     time.Duration     `yaml:"invite_every"`
	MixingClip      float64           `yaml:"-"` // τ of the edges, where agents mix; 0 = no bound
	Rollout         rollout.Config    `yaml:"-"` // of models to predict with
	Stop            stop.Config       `yaml:"stop"`
	Evaluation      evaluation.Config `yaml:"evaluation"`
	Schedule        schedule.Config   `yaml:"schedule"`
	Course          RunCourse         `yaml:"-"` // at the start; "" is CourseGo
}

// GatherConfig says which agents a round waits for before it draws.
type GatherConfig struct {
	// TargetAgents ends the gathering at once when this many agents are there; 0 = never early.
	TargetAgents int `yaml:"target"`
	// Minimum is enough when the window ends; with fewer, the window is opened again.
	Minimum int `yaml:"minimum"`
	// FirstRoundMinAgents replaces Minimum in the first round of a run if it is larger. If only a few agents make the
	// first models, the run compares later risks with the risks of these few agents. 0 = Minimum.
	FirstRoundMinAgents int `yaml:"first"`
	// WindowLength is the length of the window.
	WindowLength time.Duration `yaml:"within"`
	// HelloSpread is the time over which agents spread their hellos.
	HelloSpread time.Duration  `yaml:"spread"`
	Respond     ResponseConfig `yaml:"respond"`
}

// longest bounds durations that travel as 32 bits of milliseconds.
const longest = 1000 * time.Hour

// mostDraws bounds what a round draws, one by one.
const mostDraws = 1 << 20

// EffectiveAggregation returns the aggregation with the bounds of Robust where the configuration sets none. Robust also
// caps claims of rows and leaves out an update that outweighs all others ([UpdateLengthBounds]).
func (c *Config) EffectiveAggregation() rule.Config {
	by := c.Aggregation
	if c.Robust {
		by.ClipAboveFactor, by.RefuseAboveFactor = cmp.Or(by.ClipAboveFactor, longLengthFactor),
			cmp.Or(by.RefuseAboveFactor,
				spoilingLengthFactor)
	}
	return by
}

// DefaultConfig returns a configuration for a small federation. Its aggregation is the documents' exact average.
func DefaultConfig() Config {
	return Config{
		Algorithm: spec.FedAvg, Participants: 6, Quorum: 4, Sampling: spec.WithoutReplacement,
		AgentWeightRule: spec.WeightsEqual, WeightPlacement: spec.WeightingStep,
		Aggregation: rule.DefaultConfig(), ServerOptimizer: optimizer.DefaultConfig(),
		MaxAggregations: 0, Seed: 1, Gather: GatherConfig{Minimum: 6, WindowLength: 30 * time.Second,
			HelloSpread: 5 * time.Second,
			Respond:     ResponseConfig{Presence: PresenceAll}},
		Deadline: 2 * time.Minute, InviteEvery: 5 * time.Second, Rollout: rollout.Default(),
		Stop: stop.Default(), Evaluation: evaluation.Default(),
	}
}

// keys are those of a coordinator's options in its file.
var keys = map[spec.Option]string{
	spec.OptionAlgorithm: "round.algorithm", spec.OptionSampling: "round.sampling", spec.OptionWeights: "round.weights",
	spec.OptionWeighting: "round.weighting", spec.OptionRule: "round.aggregation.rule",
	spec.OptionServerOptimizer: "round.server_optimizer.name", spec.OptionExchange: "task.exchange",
	spec.OptionNormalize: "task.step_size.normalize", spec.OptionServerEvery: "task.mixing.server_every",
	spec.OptionProximal: "task.proximal", spec.OptionCodec: "task.codec",
	spec.OptionPersonal: "task.personal.method", spec.OptionFinetune: "task.finetune.steps",
}

// CheckConsistency finds what of the configuration does not go with the rest of it, or with the task.
func (c *Config) CheckConsistency(check *spec.ProblemList, t *wire.Task) {
	training, own := &t.Training, spec.PersonalOptions{Layers: t.Personal.Tensors, Method: spec.PersonalLayers}
	if t.Personal.Ditto {
		own.Method = spec.PersonalDitto
	}
	choice := spec.ChosenOptions{
		spec.OptionAlgorithm: string(c.Algorithm), spec.OptionSampling: string(c.Sampling),
		spec.OptionWeights: string(c.AgentWeightRule), spec.OptionWeighting: string(c.WeightPlacement),
		spec.OptionRule: c.Aggregation.Rule, spec.OptionServerOptimizer: c.ServerOptimizer.Name,
		spec.OptionExchange:  string(training.Exchange),
		spec.OptionNormalize: strconv.FormatBool(training.Normalize),
		spec.OptionProximal:  strconv.FormatFloat(training.Proximal, 'g', -1, 64),
		spec.OptionCodec:     training.Codec.Name(),
		spec.OptionPersonal:  own.OptionWord(), spec.OptionFinetune: strconv.Itoa(int(t.FinetuneSteps)),
		spec.OptionModelKind: string(t.Kind()),
	}
	if c.Algorithm == spec.FedDec && t.Mixing.EndlessBlocks {
		choice[spec.OptionServerEvery] = "0"
	}
	choice.Check(check, spec.InCoordinator, keys)
}

// Validate returns all problems, joined, each a [*spec.FieldError]. What does not go together is found by
// CheckConsistency.
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.AddError("algorithm", c.Algorithm.Validate())
	check.Require(c.Participants >= 1 && c.Participants <= mostDraws, "participants",
		"must be 1 to %d, is %d", mostDraws, c.Participants)
	check.Require(c.Quorum >= 1 && c.Quorum <= c.Participants, "quorum",
		"must be 1 to participants (%d), is %d", c.Participants, c.Quorum)
	check.Require(c.ExtraParticipants >= 0 && c.ExtraParticipants <= mostDraws, "over_select",
		"must be 0 to %d, is %d", mostDraws, c.ExtraParticipants)
	check.Require(c.ExtraParticipants == 0 || c.Sampling == spec.WithoutReplacement, "over_select",
		"goes with sampling without_replacement only")
	check.AddError("sampling", c.Sampling.Validate())
	check.AddError("weights", c.AgentWeightRule.Validate())
	check.AddError("weighting", c.WeightPlacement.Validate())
	if err := c.Aggregation.Validate(); err != nil {
		check.AddSectionErrors("aggregation", err)
	} else {
		c.Aggregation.CheckDraws(&check, c.Participants)
	}
	check.AddSectionErrors("server_optimizer", c.ServerOptimizer.Validate())
	check.Require(c.MaxAggregations >= 0, "rounds", "must not be negative, is %d (0 = without end)", c.MaxAggregations)
	check.Require(c.Gather.Minimum >= 1, "gather.minimum", "must be at least 1, is %d", c.Gather.Minimum)
	check.Require(c.Gather.Minimum >= c.Quorum || c.Sampling != spec.WithoutReplacement, "gather.minimum",
		"must be at least the quorum (%d), is %d: a round with fewer agents could not close", c.Quorum,
		c.Gather.Minimum)
	check.Require(c.Gather.TargetAgents == 0 || c.Gather.TargetAgents >= c.Gather.Minimum, "gather.target",
		"must be 0 or at least gather.minimum (%d), is %d", c.Gather.Minimum, c.Gather.TargetAgents)
	check.Require(c.Gather.FirstRoundMinAgents >= 0, "gather.first", "must not be negative, is %d",
		c.Gather.FirstRoundMinAgents)
	check.Require(c.Gather.FirstRoundMinAgents == 0 || c.Gather.TargetAgents == 0 ||
		c.Gather.FirstRoundMinAgents <= c.Gather.TargetAgents,
		"gather.first", "must be at most gather.target (%d), is %d", c.Gather.TargetAgents,
		c.Gather.FirstRoundMinAgents)
	check.Require(c.Gather.WindowLength > 0 && c.Gather.WindowLength <= longest, "gather.within",
		"must be longer than 0 and at most %s, is %s", longest, c.Gather.WindowLength)
	check.Require(c.Gather.HelloSpread >= 0 && c.Gather.HelloSpread < max(c.Gather.WindowLength, 1), "gather.spread",
		"must be 0 or more and shorter than gather.within (%s), is %s", c.Gather.WindowLength, c.Gather.HelloSpread)
	c.validateRespond(&check)
	check.Require(c.Deadline >= time.Millisecond && c.Deadline <= longest, "deadline",
		"must be 1ms to %s, is %s", longest, c.Deadline)
	check.Require(c.Pause >= 0, "pause", "must not be negative, is %s", c.Pause)
	check.Require(c.MixingClip >= 0 && !math.IsInf(c.MixingClip, 1), "clip",
		"must be a finite number of 0 or more, is %v", c.MixingClip)
	check.AddSectionErrors("rollout", c.Rollout.Validate())
	check.AddSectionErrors("stop", c.Stop.Validate())
	check.AddSectionErrors("evaluation", c.Evaluation.Validate())
	check.AddSectionErrors("schedule", c.Schedule.Validate())
	check.Require(!c.Schedule.NewRows.On() || c.Algorithm == spec.FedAvg, "schedule.new_rows",
		"goes with algorithm fedavg only: where agents mix, all rows are used in each round")
	check.Require(c.InviteEvery > 0, "invite_every", "must be longer than 0, is %s", c.InviteEvery)
	return check.Err()
}
