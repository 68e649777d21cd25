package spec

import "cmp"

// Option names what a configuration chooses by a word, as the key of an experiment.
type Option string

// The options. Tests try every two words of two of them, also of those that go with everything.
const (
	OptionAlgorithm       Option = "algorithm"
	OptionSampling        Option = "sampling"
	OptionWeights         Option = "weights" // of an experiment: samples where they differ
	OptionWeighting       Option = "weighting"
	OptionExchange        Option = "exchange"
	OptionRule            Option = "aggregation.rule"
	OptionServerOptimizer Option = "server_optimizer.name"
	OptionNormalize       Option = "step_size.normalize"
	OptionServerEvery     Option = "mixing.server_every" // 0 where blocks have no end
	OptionProximal        Option = "proximal"
	OptionCodec           Option = "codec" // of updates
	OptionModelKind       Option = "model.kind"
	OptionPersonal        Option = "personal.method" // none where no layers are personal
	OptionFinetune        Option = "finetune.steps"
)

// FileScope says which files a pair concerns.
type FileScope string

// The places.
const (
	Everywhere    FileScope = "both"
	InCoordinator FileScope = "coordinator.yaml"
	InExperiment  FileScope = "experiment"
)

// OptionValue is a word of an option, or, with Not, every other word of it.
type OptionValue struct {
	Option Option
	Word   string
	Not    bool
}

// Incompatibility is two picks that do not go together.
type Incompatibility struct {
	A, B   OptionValue
	Place  FileScope
	Reason string
}

// incompatibilities is what does not go with what: all else does. The validators of both files and docs/ALGORITHMS.md
// have it from here, and tests walk through every pair of words.
var incompatibilities = []Incompatibility{
	{optionIs(OptionRule, "median"), optionIs(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{optionIs(OptionRule, "trimmed_mean"), optionIs(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{optionIs(OptionRule, "krum"), optionIs(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{optionIs(OptionRule, "multi_krum"), optionIs(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{optionIs(OptionRule, "centered_clipping"), optionIs(OptionServerEvery, "0"), InCoordinator,
		"the server's model goes back to no agent"},
	{optionIsNot(OptionServerOptimizer, "none"), optionIs(OptionExchange, string(ExchangeGradient)), Everywhere,
		"gradients have a step size of their own"},
	{optionIsNot(OptionServerOptimizer, "none"), optionIs(OptionServerEvery, "0"), InCoordinator,
		"the server's model goes back to no agent"},
	{optionIsNot(OptionProximal, "0"), optionIs(OptionExchange, string(ExchangeGradient)), Everywhere,
		"the gradient is taken at w_{i−1} itself"},
	{optionIsNot(OptionProximal, "0"), optionIs(OptionServerEvery, "0"), InCoordinator, "no server sends w_{i−1}"},
	{optionIs(OptionCodec, topK), optionIs(OptionExchange, string(ExchangeGradient)), Everywhere,
		"what is kept of a gradient would be taken with the step size of another round"},
	{optionIs(OptionCodec, topK), optionIs(OptionRule, "median"), Everywhere, mostlyZeros},
	{optionIs(OptionCodec, topK), optionIs(OptionRule, "trimmed_mean"), Everywhere, mostlyZeros},
	{optionIs(OptionCodec, topK), optionIs(OptionServerEvery, "0"), InCoordinator,
		"agents that keep their parameters send what was kept a second time"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionExchange, string(ExchangeGradient)), Everywhere,
		"agents mix parameters"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionSampling, string(WithoutReplacement)), InCoordinator,
		"an agent that cannot send gives its draws to another one, which may have some already"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionSampling, string(Importance)), Everywhere,
		"agents that mix have come near to each other, whoever sends"},
	{optionIsNot(OptionRule, "mean"), optionIs(OptionSampling, string(Importance)), Everywhere,
		"the mean alone weighs an update by how seldom its agent is drawn"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionWeights, string(WeightsSamples)), InCoordinator,
		"mixing averages the agents alike"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionNormalize, "true"), InCoordinator,
		"its step size is per local step (feddec Alg. 1)"},
	{optionIs(OptionAlgorithm, string(FedDec)), optionIs(OptionWeighting, string(WeightingMean)), InExperiment,
		"feddec weighs in the step"},
	{optionIsNot(OptionPersonal, "none"), optionIs(OptionExchange, string(ExchangeGradient)), Everywhere,
		"an agent takes no local steps"},
	{optionIsNot(OptionPersonal, "none"), optionIs(OptionAlgorithm, string(FedDec)), Everywhere,
		"agents that mix have come near to each other"},
	{optionIs(OptionPersonal, string(PersonalDitto)), optionIsNot(OptionFinetune, "0"), Everywhere,
		"the agent has a model of its own already"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIs(OptionExchange, string(ExchangeGradient)),
		InCoordinator,
		"a program of the device's takes steps, and tells no gradients"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIs(OptionPersonal, string(PersonalDitto)), InCoordinator,
		"the device's program trains one model"},
	{optionIs(OptionModelKind, string(ModelExternal)), optionIsNot(OptionFinetune, "0"), InCoordinator,
		"agentd does not predict with a model that it does not know"},
}

const (
	withoutWeights = "the rule leaves the agents' weights out"
	mostlyZeros    = "most elements of most updates are 0, and so is what stands in their middle"
)

func optionIs(o Option, word string) OptionValue { return OptionValue{Option: o, Word: word} }
func optionIsNot(o Option, word string) OptionValue {
	return OptionValue{Option: o, Word: word, Not: true}
}

// Incompatibilities returns what does not go together in a file; Everywhere asks for all.
func Incompatibilities(in FileScope) (found []Incompatibility) {
	for _, p := range incompatibilities {
		if in == Everywhere || p.Place == Everywhere || p.Place == in {
			found = append(found, p)
		}
	}
	return found
}

// ChosenOptions is the words that a configuration has chosen.
type ChosenOptions map[Option]string

// Matches reports whether the choice has a word of the pick. One that has not chosen has none.
func (c ChosenOptions) Matches(p OptionValue) bool {
	word, chosen := c[p.Option]
	return chosen && (word == p.Word) != p.Not
}

// Check finds the words of a choice that do not go together. keys are the options' keys in the file, where they differ.
func (c ChosenOptions) Check(k *ProblemList, in FileScope, keys map[Option]string) {
	key := func(o Option) string { return cmp.Or(keys[o], string(o)) }
	for _, p := range Incompatibilities(in) {
		k.Require(!c.Matches(p.A) || !c.Matches(p.B), key(p.A.Option), "%s does not go with %s %s: %s", c[p.A.Option],
			key(p.B.Option), c[p.B.Option], p.Reason)
	}
}
