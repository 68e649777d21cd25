package spec

import "cmp"

// OptionName is the name of a configuration option, as used in experiments.
type OptionName string

// Names of the options. Tests try every combination of two options, including options without incompatibilities.
const (
	OptionAlgorithm OptionName = "algorithm"
	OptionSampling  OptionName = "sampling"
	// weighting of agents; in an experiment, the value is "samples" if the weights of agents differ.
	OptionAgentWeights    OptionName = "weights"
	OptionWeightPlacement OptionName = "weighting"
	OptionExchange        OptionName = "exchange"
	OptionAggregationRule OptionName = "aggregation.rule"
	OptionServerOptimizer OptionName = "server_optimizer.name"
	OptionNormalize       OptionName = "step_size.normalize"
	OptionServerEvery     OptionName = "mixing.server_every" // 0 means endless mixing blocks, continued across rounds
	OptionProximal        OptionName = "proximal"
	OptionCodec           OptionName = "codec" // codec with which agents encode updates
	OptionModelKind       OptionName = "model.kind"
	// method of personal models; "none" if personal models are disabled.
	OptionPersonal OptionName = "personal.method"
	OptionFinetune OptionName = "finetune.steps"
)

// ConfigFileScope selects the files in which two options are incompatible.
type ConfigFileScope string

// Kinds of files to which an incompatibility can apply.
const (
	InBothFiles       ConfigFileScope = "both"
	InCoordinatorFile ConfigFileScope = "coordinator.yaml"
	InExperimentFile  ConfigFileScope = "experiment"
)

// OptionCondition matches an option with the given value. With IsNegated it matches an option with any other value.
type OptionCondition struct {
	Option      OptionName
	OptionValue string
	IsNegated   bool
}

// Incompatibility is a pair of option values that cannot be combined.
type Incompatibility struct {
	A, B      OptionCondition
	FileScope ConfigFileScope
	Reason    string
}

// incompatibilities contains all pairs of option values that cannot be combined. Validators, tests and
// docs/ALGORITHMS.md use this list.
var incompatibilities = []Incompatibility{
	{optionIs(OptionAggregationRule, "median"), optionIs(OptionAgentWeights, string(WeightsSamples)), InBothFiles,
		ruleIgnoresWeights},
	{optionIs(OptionAggregationRule, "trimmed_mean"), optionIs(OptionAgentWeights, string(WeightsSamples)),
		InBothFiles, ruleIgnoresWeights},
	{optionIs(OptionAggregationRule, "krum"), optionIs(OptionAgentWeights, string(WeightsSamples)), InBothFiles,
		ruleIgnoresWeights},
	{optionIs(OptionAggregationRule, "multi_krum"), optionIs(OptionAgentWeights, string(WeightsSamples)), InBothFiles,
		ruleIgnoresWeights},
	{optionIs(OptionAggregationRule, "centered_clipping"), optionIs(OptionServerEvery, "0"), InCoordinatorFile,
		"agents never receive the server's model"},
	{optionIsNot(OptionServerOptimizer, "none"), optionIs(OptionExchange, string(ExchangeGradient)), InBothFiles,
		"the gradient exchange has its own step size"},
	{optionIsNot(OptionServerOptimizer, "none"), optionIs(OptionServerEvery, "0"), InCoordinatorFile,
		"agents never receive the server's model"},
	{optionIsNot(OptionProximal, "0"), optionIs(OptionExchange, string(ExchangeGradient)), InBothFiles,
		"the gradient is evaluated at the server's model w_{i−1} itself"},
	{optionIsNot(OptionProximal, "0"), optionIs(OptionServerEvery, "0"), InCoordinatorFile,
		"the server never sends the model w_{i−1}"},
	{optionIs(OptionCodec, topKCodecName), optionIs(OptionExchange, string(ExchangeGradient)), InBothFiles,
		"the unsent part of a gradient would be applied with the step size of a later round"},
	{optionIs(OptionCodec, topKCodecName), optionIs(OptionAggregationRule, "median"), InBothFiles,
		updatesAreMostlyZero},
	{optionIs(OptionCodec, topKCodecName), optionIs(OptionAggregationRule, "trimmed_mean"), InBothFiles,
		updatesAreMostlyZero},
	{optionIs(OptionCodec, topKCodecName), optionIs(OptionServerEvery, "0"), InCoordinatorFile,
		"agents that keep their parameters would send the unsent part twice"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionExchange, string(ExchangeGradient)), InBothFiles,
		"agents mix parameters, not gradients"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionSampling, string(SamplingWithoutReplacement)),
		InCoordinatorFile,
		"an agent that cannot send passes its draws to another agent, which may already have been drawn"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionSampling, string(SamplingImportance)), InBothFiles,
		"mixing brings the agents' models close together, so importance sampling has no benefit"},
	{optionIsNot(OptionAggregationRule, "mean"), optionIs(OptionSampling, string(SamplingImportance)), InBothFiles,
		"only the mean weights an update by the inverse of its agent's probability"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionAgentWeights, string(WeightsSamples)), InCoordinatorFile,
		"mixing averages all agents with equal weight"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionNormalize, "true"), InCoordinatorFile,
		"feddec applies the step size to each local step (feddec Alg. 1)"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionWeightPlacement, string(WeightInServerMean)),
		InExperimentFile,
		"feddec applies the weights in the local step"},
	{optionIsNot(OptionPersonal, "none"), optionIs(OptionExchange, string(ExchangeGradient)), InBothFiles,
		"agents take no local steps"},
	{optionIsNot(OptionPersonal, "none"), optionIs(OptionAlgorithm, string(FedDec)), InBothFiles,
		"mixing brings the agents' models close together"},
	{optionIs(OptionPersonal, string(PersonalDitto)), optionIsNot(OptionFinetune, "0"), InBothFiles,
		"the agent already has a personal model"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIs(OptionExchange, string(ExchangeGradient)),
		InCoordinatorFile,
		"the external program returns parameters, not gradients"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIs(OptionPersonal, string(PersonalDitto)),
		InCoordinatorFile,
		"the external program trains only one model"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIsNot(OptionFinetune, "0"), InCoordinatorFile,
		"agentd cannot predict with an external model"},
}

const (
	ruleIgnoresWeights   = "the rule ignores the agents' weights"
	updatesAreMostlyZero = "most elements of most updates are 0, so the result would be mostly 0"
)

func optionIs(o OptionName, word string) OptionCondition {
	return OptionCondition{Option: o, OptionValue: word}
}
func optionIsNot(o OptionName, word string) OptionCondition {
	return OptionCondition{Option: o, OptionValue: word, IsNegated: true}
}

// Incompatibilities returns the incompatible pairs for one kind of file. For InBothFiles it returns all pairs.
func Incompatibilities(in ConfigFileScope) (found []Incompatibility) {
	for _, p := range incompatibilities {
		if in == InBothFiles || p.FileScope == InBothFiles || p.FileScope == in {
			found = append(found, p)
		}
	}
	return found
}

// ChosenOptions maps options to their values in a configuration.
type ChosenOptions map[OptionName]string

// Matches reports whether the chosen value satisfies the condition. It returns false if the option has no value.
func (c ChosenOptions) Matches(p OptionCondition) bool {
	word, chosen := c[p.Option]
	return chosen && (word == p.OptionValue) != p.IsNegated
}

// CheckIncompatibilities adds an error to k for each incompatible pair of chosen values. The map keys contains the
// configuration key of each option whose key in the file differs from its name.
func (c ChosenOptions) CheckIncompatibilities(k *ProblemList, in ConfigFileScope, keys map[OptionName]string) {
	key := func(o OptionName) string { return cmp.Or(keys[o], string(o)) }
	for _, p := range Incompatibilities(in) {
		k.Require(!c.Matches(p.A) || !c.Matches(p.B), key(p.A.Option), "%s cannot be combined with %s %s: %s",
			c[p.A.Option],
			key(p.B.Option), c[p.B.Option], p.Reason)
	}
}
