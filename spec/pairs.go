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

// Place says which files a pair concerns.
type Place string

// The places.
const (
	Everywhere    Place = "both"
	InCoordinator Place = "coordinator.yaml"
	InExperiment  Place = "experiment"
)

// Pick is a word of an option, or, with Not, every other word of it.
type Pick struct {
	Option Option
	Word   string
	Not    bool
}

// Pair is two picks that do not go together.
type Pair struct {
	A, B  Pick
	Place Place
	Why   string
}

// pairs is what does not go with what: all else does. The validators of both files and docs/ALGORITHMS.md have it from
// here, and tests walk through every pair of words.
var pairs = []Pair{
	{is(OptionRule, "median"), is(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{is(OptionRule, "trimmed_mean"), is(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{is(OptionRule, "krum"), is(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{is(OptionRule, "multi_krum"), is(OptionWeights, string(WeightsSamples)), Everywhere, withoutWeights},
	{is(OptionRule, "centered_clipping"), is(OptionServerEvery, "0"), InCoordinator,
		"the server's model goes back to no agent"},
	{not(OptionServerOptimizer, "none"), is(OptionExchange, string(ExchangeGradient)), Everywhere,
		"gradients have a step size of their own"},
	{not(OptionServerOptimizer, "none"), is(OptionServerEvery, "0"), InCoordinator,
		"the server's model goes back to no agent"},
	{not(OptionProximal, "0"), is(OptionExchange, string(ExchangeGradient)), Everywhere,
		"the gradient is taken at w_{i−1} itself"},
	{not(OptionProximal, "0"), is(OptionServerEvery, "0"), InCoordinator, "no server sends w_{i−1}"},
	{is(OptionCodec, topK), is(OptionExchange, string(ExchangeGradient)), Everywhere,
		"what is kept of a gradient would be taken with the step size of another round"},
	{is(OptionCodec, topK), is(OptionRule, "median"), Everywhere, mostlyZeros},
	{is(OptionCodec, topK), is(OptionRule, "trimmed_mean"), Everywhere, mostlyZeros},
	{is(OptionCodec, topK), is(OptionServerEvery, "0"), InCoordinator,
		"agents that keep their parameters send what was kept a second time"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionExchange, string(ExchangeGradient)), Everywhere,
		"agents mix parameters"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionSampling, string(WithoutReplacement)), InCoordinator,
		"an agent that cannot send gives its draws to another one, which may have some already"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionSampling, string(Importance)), Everywhere,
		"agents that mix have come near to each other, whoever sends"},
	{not(OptionRule, "mean"), is(OptionSampling, string(Importance)), Everywhere,
		"the mean alone weighs an update by how seldom its agent is drawn"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionWeights, string(WeightsSamples)), InCoordinator,
		"mixing averages the agents alike"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionNormalize, "true"), InCoordinator,
		"its step size is per local step (feddec Alg. 1)"},
	{is(OptionAlgorithm, string(FedDec)), is(OptionWeighting, string(WeightingMean)), InExperiment,
		"feddec weighs in the step"},
	{not(OptionPersonal, "none"), is(OptionExchange, string(ExchangeGradient)), Everywhere,
		"an agent takes no local steps"},
	{not(OptionPersonal, "none"), is(OptionAlgorithm, string(FedDec)), Everywhere,
		"agents that mix have come near to each other"},
	{is(OptionPersonal, string(PersonalDitto)), not(OptionFinetune, "0"), Everywhere,
		"the agent has a model of its own already"},
	{is(OptionModelKind, string(ModelExternal)), is(OptionExchange, string(ExchangeGradient)), InCoordinator,
		"a program of the device's takes steps, and tells no gradients"},
	{is(OptionModelKind, string(ModelExternal)), is(OptionPersonal, string(PersonalDitto)), InCoordinator,
		"the device's program trains one model"},
	{is(OptionModelKind, string(ModelExternal)), not(OptionFinetune, "0"), InCoordinator,
		"agentd does not predict with a model that it does not know"},
}

const (
	withoutWeights = "the rule leaves the agents' weights out"
	mostlyZeros    = "most elements of most updates are 0, and so is what stands in their middle"
)

func is(o Option, word string) Pick  { return Pick{Option: o, Word: word} }
func not(o Option, word string) Pick { return Pick{Option: o, Word: word, Not: true} }

// Pairs returns what does not go together in a file; Everywhere asks for all.
func Pairs(in Place) (found []Pair) {
	for _, p := range pairs {
		if in == Everywhere || p.Place == Everywhere || p.Place == in {
			found = append(found, p)
		}
	}
	return found
}

// Choice is the words that a configuration has chosen.
type Choice map[Option]string

// Has reports whether the choice has a word of the pick. One that has not chosen has none.
func (c Choice) Has(p Pick) bool {
	word, chosen := c[p.Option]
	return chosen && (word == p.Word) != p.Not
}

// Check finds the words of a choice that do not go together. keys are the options' keys in the file, where they differ.
func (c Choice) Check(k *Check, in Place, keys map[Option]string) {
	key := func(o Option) string { return cmp.Or(keys[o], string(o)) }
	for _, p := range Pairs(in) {
		k.Need(!c.Has(p.A) || !c.Has(p.B), key(p.A.Option), "%s does not go with %s %s: %s", c[p.A.Option],
			key(p.B.Option), c[p.B.Option], p.Why)
	}
}
