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

// Config is the configuration of the coordinator's state machine. All numbers of participants count agents.
type Config struct {
	Algorithm    spec.Algorithm `yaml:"algorithm"`
	Participants int            `yaml:"participants"` // number L of agents drawn per round
	// minimum number of draws with an accepted update that the coordinator requires to close a round at its deadline
	Quorum int `yaml:"quorum"`
	// number of agents that are drawn in addition to Participants, to tolerate agents that fail; with uniform sampling,
	// a value above 0 favours fast agents
	ExtraParticipants int                      `yaml:"over_select"`
	Sampling          spec.ParticipantSampling `yaml:"sampling"`
	AgentWeightRule   spec.AgentWeightRule     `yaml:"weights"`
	WeightPlacement   spec.WeightPlacement     `yaml:"weighting"`
	// UsesRobustAggregation bounds the influence of a single agent on the model, at the cost of a bias against agents
	// with unusual data: see EffectiveAggregation.
	UsesRobustAggregation bool `yaml:"robust"`
	// Aggregation configures how updates are aggregated.
	Aggregation     rule.Config      `yaml:"aggregation"`
	ServerOptimizer optimizer.Config `yaml:"server_optimizer"`
	// number of aggregations after which the run is finished; 0 means no limit
	MaxAggregations    int           `yaml:"rounds"`
	Seed               uint64        `yaml:"seed"`
	Gather             GatherConfig  `yaml:"gather"`
	RoundTimeout       time.Duration `yaml:"deadline"` // maximum duration of a round, from its announcement
	PauseBetweenRounds time.Duration `yaml:"pause"`
	ReinviteInterval   time.Duration `yaml:"invite_every"`
	// maximum norm τ of the parameter difference that two neighbours mix over an edge; 0 means no limit
	MixingClipBound float64           `yaml:"-"`
	Rollout         rollout.Config    `yaml:"-"`
	Stop            stop.Config       `yaml:"stop"`
	Evaluation      evaluation.Config `yaml:"evaluation"`
	Schedule        schedule.Config   `yaml:"schedule"`
	OperatorCommand OperatorCommand   `yaml:"-"`
}

// GatherConfig configures how many agents a round waits for before it draws its participants, and for how long.
type GatherConfig struct {
	// TargetAgents is the number of present agents at which gathering ends before its time window ends. The value 0
	// means that gathering never ends early.
	TargetAgents int `yaml:"target"`
	// MinAgents is the minimum number of present agents at the end of the gathering window. With fewer agents the
	// coordinator extends the window.
	MinAgents int `yaml:"minimum"`
	// FirstRoundMinAgents is the minimum number of present agents in the first round of a run. It replaces MinAgents if
	// it is larger. It prevents a few agents from setting the reference risk (mean loss) to which the run compares
	// later models.
	FirstRoundMinAgents int           `yaml:"first"`
	WindowLength        time.Duration `yaml:"within"`
	// HelloSpread is the period over which agents spread their hello messages.
	HelloSpread     time.Duration         `yaml:"spread"`
	ResponseLottery ResponseLotteryConfig `yaml:"respond"`
}

// maxConfiguredDuration bounds durations that messages encode as 32-bit milliseconds.
const maxConfiguredDuration = 1000 * time.Hour

// maxDrawsPerRound bounds the number of draws in a round.
const maxDrawsPerRound = 1 << 20

// EffectiveAggregation returns the aggregation settings. With UsesRobustAggregation it sets default norm bounds where
// the configuration has none. UsesRobustAggregation also limits the numbers of rows that agents report, and excludes an
// update whose norm outweighs all other updates ([UpdateNormAssessment]).
func (c *Config) EffectiveAggregation() rule.Config {
	by := c.Aggregation
	if c.UsesRobustAggregation {
		by.ClipAboveFactor, by.RefuseAboveFactor = cmp.Or(by.ClipAboveFactor, largeNormFactor),
			cmp.Or(by.RefuseAboveFactor,
				spoilingNormFactor)
	}
	return by
}

// DefaultConfig returns a configuration for a small federation. Its aggregation is the exact weighted average.
func DefaultConfig() Config {
	return Config{
		Algorithm: spec.FedAvg, Participants: 6, Quorum: 4, Sampling: spec.SamplingWithoutReplacement,
		AgentWeightRule: spec.WeightsEqual, WeightPlacement: spec.WeightInStepSize,
		Aggregation: rule.DefaultConfig(), ServerOptimizer: optimizer.DefaultConfig(),
		MaxAggregations: 0, Seed: 1, Gather: GatherConfig{MinAgents: 6, WindowLength: 30 * time.Second,
			HelloSpread:     5 * time.Second,
			ResponseLottery: ResponseLotteryConfig{Presence: PresenceOfAllAgents}},
		RoundTimeout: 2 * time.Minute, ReinviteInterval: 5 * time.Second, Rollout: rollout.DefaultConfig(),
		Stop: stop.DefaultConfig(), Evaluation: evaluation.DefaultConfig(),
	}
}

// configKeyByOption maps options to their keys in the coordinator's configuration file.
var configKeyByOption = map[spec.OptionName]string{
	spec.OptionAlgorithm: "round.algorithm", spec.OptionSampling: "round.sampling",
	spec.OptionAgentWeights:    "round.weights",
	spec.OptionWeightPlacement: "round.weighting", spec.OptionAggregationRule: "round.aggregation.rule",
	spec.OptionServerOptimizer: "round.server_optimizer.name", spec.OptionExchange: "task.exchange",
	spec.OptionNormalize: "task.step_size.normalize", spec.OptionServerEvery: "task.mixing.server_every",
	spec.OptionProximal: "task.proximal", spec.OptionCodec: "task.codec",
	spec.OptionPersonal: "task.personal.method", spec.OptionFinetune: "task.finetune.steps",
}

// CheckConsistency reports incompatible combinations of options in the configuration and the task.
func (c *Config) CheckConsistency(check *spec.ProblemList, t *wire.Task) {
	training, own := &t.Training, spec.PersonalOptions{Layers: t.Personal.PersonalTensors, Method: spec.PersonalLayers}
	if t.Personal.UsesDitto {
		own.Method = spec.PersonalDitto
	}
	choice := spec.ChosenOptions{
		spec.OptionAlgorithm: string(c.Algorithm), spec.OptionSampling: string(c.Sampling),
		spec.OptionAgentWeights: string(c.AgentWeightRule), spec.OptionWeightPlacement: string(c.WeightPlacement),
		spec.OptionAggregationRule: c.Aggregation.Rule, spec.OptionServerOptimizer: c.ServerOptimizer.Name,
		spec.OptionExchange:  string(training.ExchangeKind),
		spec.OptionNormalize: strconv.FormatBool(training.NormalizesStepSize),
		spec.OptionProximal:  strconv.FormatFloat(training.Proximal, 'g', -1, 64),
		spec.OptionCodec:     training.UpdateCodec.Name(),
		spec.OptionPersonal:  own.MethodOrNone(), spec.OptionFinetune: strconv.Itoa(int(t.FinetuneSteps)),
		spec.OptionModelKind: string(t.ModelKind()),
	}
	if c.Algorithm == spec.FedDec && t.Mixing.HasEndlessBlocks {
		choice[spec.OptionServerEvery] = "0"
	}
	choice.CheckIncompatibilities(check, spec.InCoordinatorFile, configKeyByOption)
}

// Validate returns all configuration errors, joined, each a [*spec.FieldError]. CheckConsistency reports incompatible
// options.
func (c *Config) Validate() error {
	var check spec.ProblemList
	check.AddError("algorithm", c.Algorithm.Validate())
	check.Require(c.Participants >= 1 && c.Participants <= maxDrawsPerRound, "participants",
		"must be between 1 and %d, but is %d", maxDrawsPerRound, c.Participants)
	check.Require(c.Quorum >= 1 && c.Quorum <= c.Participants, "quorum",
		"must be between 1 and participants (%d), but is %d", c.Participants, c.Quorum)
	check.Require(c.ExtraParticipants >= 0 && c.ExtraParticipants <= maxDrawsPerRound, "over_select",
		"must be between 0 and %d, but is %d", maxDrawsPerRound, c.ExtraParticipants)
	check.Require(c.ExtraParticipants == 0 || c.Sampling == spec.SamplingWithoutReplacement, "over_select",
		"requires sampling without_replacement")
	check.AddError("sampling", c.Sampling.Validate())
	check.AddError("weights", c.AgentWeightRule.Validate())
	check.AddError("weighting", c.WeightPlacement.Validate())
	if err := c.Aggregation.Validate(); err != nil {
		check.AddSectionErrors("aggregation", err)
	} else {
		c.Aggregation.CheckDraws(&check, c.Participants)
	}
	check.AddSectionErrors("server_optimizer", c.ServerOptimizer.Validate())
	check.Require(c.MaxAggregations >= 0, "rounds", "must not be negative (0 = no limit), but is %d", c.MaxAggregations)
	check.Require(c.Gather.MinAgents >= 1, "gather.minimum", "must be at least 1, but is %d", c.Gather.MinAgents)
	check.Require(c.Gather.MinAgents >= c.Quorum || c.Sampling != spec.SamplingWithoutReplacement, "gather.minimum",
		"must be at least the quorum (%d), but is %d: a round with fewer agents cannot reach the quorum", c.Quorum,
		c.Gather.MinAgents)
	check.Require(c.Gather.TargetAgents == 0 || c.Gather.TargetAgents >= c.Gather.MinAgents, "gather.target",
		"must be 0 or at least gather.minimum (%d), but is %d", c.Gather.MinAgents, c.Gather.TargetAgents)
	check.Require(c.Gather.FirstRoundMinAgents >= 0, "gather.first", "must not be negative, but is %d",
		c.Gather.FirstRoundMinAgents)
	check.Require(c.Gather.FirstRoundMinAgents == 0 || c.Gather.TargetAgents == 0 ||
		c.Gather.FirstRoundMinAgents <= c.Gather.TargetAgents,
		"gather.first", "must be at most gather.target (%d), but is %d", c.Gather.TargetAgents,
		c.Gather.FirstRoundMinAgents)
	check.Require(c.Gather.WindowLength > 0 && c.Gather.WindowLength <= maxConfiguredDuration, "gather.within",
		"must be longer than 0 and at most %s, but is %s", maxConfiguredDuration, c.Gather.WindowLength)
	check.Require(c.Gather.HelloSpread >= 0 && c.Gather.HelloSpread < max(c.Gather.WindowLength, 1), "gather.spread",
		"must be 0 or more and shorter than gather.within (%s), but is %s", c.Gather.WindowLength, c.Gather.HelloSpread)
	c.validateResponse(&check)
	check.Require(c.RoundTimeout >= time.Millisecond && c.RoundTimeout <= maxConfiguredDuration, "deadline",
		"must be between 1ms and %s, but is %s", maxConfiguredDuration, c.RoundTimeout)
	check.Require(c.PauseBetweenRounds >= 0, "pause", "must not be negative, but is %s", c.PauseBetweenRounds)
	check.Require(c.MixingClipBound >= 0 && !math.IsInf(c.MixingClipBound, 1), "clip",
		"must be finite and not negative, but is %v", c.MixingClipBound)
	check.AddSectionErrors("rollout", c.Rollout.Validate())
	check.AddSectionErrors("stop", c.Stop.Validate())
	check.AddSectionErrors("evaluation", c.Evaluation.Validate())
	check.AddSectionErrors("schedule", c.Schedule.Validate())
	check.Require(!c.Schedule.NewRows.IsEnabled() || c.Algorithm == spec.FedAvg, "schedule.new_rows",
		"requires the algorithm fedavg, because rounds with mixing always use all rows")
	check.Require(c.ReinviteInterval > 0, "invite_every", "must be longer than 0, but is %s", c.ReinviteInterval)
	return check.Err()
}
