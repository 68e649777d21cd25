package sim

import (
	"fmt"
	"math"
	"strconv"

	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/spec"
)

// Limits that reject mistyped values before the simulation exhausts the memory.
const (
	maxAgents = 100_000_000
	maxRounds = 1_000_000_000
	maxSteps  = 1_000_000
	maxBatch  = 65536

	maxRecords = 1 << 24 // maximum number of records per metric, over all runs
)

// Validate returns an error that joins one [*spec.FieldError] for each invalid value. [Run] makes further checks, for
// which it needs the data.
func (e *Experiment) Validate() error {
	if e.Load != "" { // if a dump is loaded, the data section is not used
		return e.validate()
	}
	var v spec.ProblemList
	v.AddSectionErrors("", e.validate())
	v.AddSectionErrors("", e.Data.Validate(e.Agents))
	v.Require(e.Data.OwnHeldOut > 0 || !e.Data.Table() || !e.personal(), "data.own_held_out",
		"is 0, but personal models are evaluated on the held-out rows of each agent: set it, for example to 0.3")
	v.Require(!e.WeighRows || !e.Data.Streams(), "weigh_rows", "is true, but agents with %s data have no rows",
		e.Data.Kind)
	return v.Err()
}

// validate checks all settings except the data section.
func (e *Experiment) validate() error {
	var v spec.ProblemList
	v.Require(e.Runs >= 1 && e.Runs <= 1_000_000, "runs", "is %d; want 1 to 1000000", e.Runs)
	v.Require(e.Rounds >= 1 && e.Rounds <= maxRounds, "rounds", "is %d; want 1 to %d", e.Rounds, maxRounds)
	v.Require(e.Record >= 0, "record", "is %d; want at least 0", e.Record)
	v.Require(e.Record <= 0 || float64(e.Rounds)/float64(e.Record)*float64(e.Runs) <= maxRecords, "record",
		"is %d; with %d rounds in %d runs, the result exceeds the limit of %d records",
		e.Record, e.Rounds, e.Runs, maxRecords)
	spec.RequireOneOf(&v, "precision", e.Precision, Float32, Float64)
	v.AddError("algorithm", e.Algorithm.Validate())
	v.AddError("sampling", e.Sampling.Validate())
	v.AddError("exchange", e.Exchange.Validate())
	v.AddError("codec", e.Codec.Validate())
	v.AddError("weighting", e.Weighting.Validate())
	if err := e.Aggregation.Validate(); err != nil {
		v.AddSectionErrors("aggregation", err)
	} else {
		e.Aggregation.CheckDraws(&v, e.Participants.Count)
	}
	v.AddSectionErrors("server_optimizer", e.ServerOptimizer.Validate())
	e.choice().CheckIncompatibilities(&v, spec.InExperimentFile, nil)
	v.Require(e.Agents >= 0 && e.Agents <= maxAgents, "agents", "is %d; want 0 to %d", e.Agents, maxAgents)
	v.Require(e.Participants.File == "" || e.Sampling != spec.SamplingImportance, "participants",
		"is a file, but importance sampling requires a number")
	v.Require(e.Participants.Count >= 0 && e.Participants.Count <= maxAgents, "participants",
		"is %d; want 1 to the number of agents, or 0 for all", e.Participants.Count)
	if e.Agents > 0 && e.Sampling == spec.SamplingWithoutReplacement {
		v.Require(e.Participants.Count <= e.Agents, "participants", "is %d; want at most the number of agents (%d) "+
			"without replacement",
			e.Participants.Count, e.Agents)
	}
	e.validateSteps(&v)
	e.validateChance(&v)
	e.validateAttack(&v)
	e.validateMixing(&v)
	e.validatePersonal(&v)
	return v.Err()
}

// personal reports whether agents have personal models.
func (e *Experiment) personal() bool { return e.Personal.IsEnabled() || e.Finetune.Steps > 0 }

func (e *Experiment) validatePersonal(v *spec.ProblemList) {
	spec.CheckPersonalOptions(v, "personal", &e.Personal)
	spec.CheckFinetuneOptions(v, "finetune", &e.Finetune)
	v.Require(e.Dump == "" && e.Load == "" || !e.personal(), "personal",
		"uses random draws that a dump does not contain: remove --dump and --load")
	v.Require(!e.RecordMeanIterate || !e.Personal.IsEnabled(), "shadow",
		"is true, but with personal models there is no single model to record")
}

// choice returns the selected options, so that incompatible combinations can be detected.
func (e *Experiment) choice() spec.ChosenOptions {
	weights := spec.WeightsEqual
	if e.WeighRows || !e.Weights.allEqual() {
		weights = spec.WeightsSamples
	}
	return spec.ChosenOptions{
		spec.OptionAlgorithm: string(e.Algorithm), spec.OptionSampling: string(e.Sampling),
		spec.OptionAgentWeights: string(weights), spec.OptionWeightPlacement: string(e.Weighting),
		spec.OptionAggregationRule: e.Aggregation.Rule, spec.OptionServerOptimizer: e.ServerOptimizer.Name,
		spec.OptionExchange:  string(e.Exchange),
		spec.OptionNormalize: strconv.FormatBool(e.StepSize.NormalizesStepSize),
		spec.OptionProximal:  strconv.FormatFloat(e.Proximal, 'g', -1, 64),
		spec.OptionCodec:     e.Codec.Name(), spec.OptionPersonal: e.Personal.MethodOrNone(),
		spec.OptionFinetune: strconv.Itoa(e.Finetune.Steps),
	}
}

func (e *Experiment) validateSteps(v *spec.ProblemList) {
	whole(v, "local_steps", e.LocalSteps, 1, maxSteps)
	whole(v, "batch_size", e.BatchSize, 0, maxBatch)
	e.StepSize.Check(v, "step_size")
	if e.Exchange == spec.ExchangeGradient {
		v.Require(e.LocalSteps.allEqual() && e.LocalSteps.Values[0] == 1, "local_steps",
			"is %v; want 1 with the exchange of gradients", e.LocalSteps)
	}
	v.Require(e.Weights.Draw == "" && len(e.Weights.Values) > 0, "weights", "is %v; want a number or a list", e.Weights)
	for i, p := range e.Weights.Values {
		v.Require(p > 0, element("weights", e.Weights, i), "is %v; want a positive number", p)
	}
	v.Require(!e.WeighRows || e.Weights.allEqual(), "weights", "is %v, but weigh_rows uses the numbers of rows as "+
		"weights: remove one of them", e.Weights)
}

func (e *Experiment) validateChance(v *spec.ProblemList) {
	r := e.Response
	spec.RequireOneOf(v, "response.per", r.StraggleUnit, StraggleStep, StraggleRound)
	v.Require(r.Probability.Draw == "" && len(r.Probability.Values) > 0, "response.probability",
		"is %v; want a number or a list", r.Probability)
	for i, p := range r.Probability.Values {
		spec.CheckLocalStepProbability(v, element("response.probability", r.Probability, i), p)
	}
	e.GradientNoise.Check(v, "gradient_noise")
	v.Require(e.Proximal >= 0 && !math.IsInf(e.Proximal, 1), "proximal", "is %v; want 0 or more", e.Proximal)
}

func (e *Experiment) validateAttack(v *spec.ProblemList) {
	if e.Attack == "" {
		v.Require(e.Attackers == 0, "attackers", "is %d but attack is empty: set attack", e.Attackers)
		return
	}
	if _, err := attack.Parse(e.Attack); err != nil {
		v.Require(false, "attack", "%v", err)
	}
	v.Require(e.Attackers >= 1 && (e.Agents == 0 || e.Attackers <= e.Agents), "attackers",
		"is %d; want 1 to the number of agents", e.Attackers)
}

func (e *Experiment) validateMixing(v *spec.ProblemList) {
	if e.Algorithm != spec.FedDec {
		return
	}
	m := e.Mixing
	v.Require(m.ServerEvery >= 1, "mixing.server_every", "is %d; want at least 1", m.ServerEvery)
	v.Require(m.FirstBlock >= 0 && m.FirstBlock <= m.ServerEvery, "mixing.first_block",
		"is %d; want 0 (H−1) to mixing.server_every (%d)", m.FirstBlock, m.ServerEvery)
	whole(v, "mixing.gradients", m.Gradients, 0, float64(m.ServerEvery))
	v.Require(m.Every >= 1 && m.ServerEvery%max(m.Every, 1) == 0, "mixing.every",
		"is %d; want a divisor of mixing.server_every (%d)", m.Every, m.ServerEvery)
	v.AddError("mixing.codec", m.Codec.ValidateForMixing())
	v.Require(m.Clip >= 0 && !math.IsInf(m.Clip, 1), "mixing.clip", "is %v; want a finite number of at least 0", m.Clip)
	spec.RequireOneOf(v, "mixing.graph", m.Graph, NoGraph, Geographic, Random, Ring, Complete, GraphFile)
	v.AddError("mixing.weights", m.Weights.Validate())
	v.Require(m.LinkUp > 0 && m.LinkUp <= 1, "mixing.link_up", "is %v; want more than 0 and at most 1", m.LinkUp)
	v.Require(m.Graph != Geographic || m.Radius > 0, "mixing.radius", "is %v; want a positive number", m.Radius)
	v.Require(m.Graph != Random || m.Probability > 0 && m.Probability <= 1, "mixing.probability",
		"is %v; want more than 0 and at most 1", m.Probability)
	e.validateGraphSize(v)
	v.Require(m.Graph != GraphFile || m.File != "", "mixing.file", "is empty; want the path of the graph file")
	v.Require(e.LocalSteps.allEqual() && e.LocalSteps.Values[0] == 1, "local_steps",
		"is %v; want 1 with feddec, and set mixing.gradients instead", e.LocalSteps)
	v.Require(e.Response.StraggleUnit == StraggleStep || e.Response.Probability.allEqual() &&
		e.Response.Probability.Values[0] == 1,
		"response.per", "is %q; want step with feddec", e.Response.StraggleUnit)
	v.Require(!e.RecordMeanIterate, "shadow", "is supported only with fedavg: feddec always records the mean")
}

// Limits on the number of agents for FedDec. The simulation keeps all agents in memory. The search for a connected
// graph takes quadratic time, and spectral weights need the eigenvalues of a Laplacian matrix.
const (
	maxMixing   = 1_000_000
	maxDrawn    = 2_000
	maxSpectral = 1_000
)

func (e *Experiment) validateGraphSize(v *spec.ProblemList) {
	m := e.Mixing
	switch m.Graph {
	case Geographic, Random, Complete:
		v.Require(e.Agents <= maxDrawn, "agents", "is %d; want at most %d with a %s graph", e.Agents, maxDrawn, m.Graph)
	default:
		v.Require(e.Agents <= maxMixing, "agents", "is %d; want at most %d with feddec", e.Agents, maxMixing)
	}
	if m.Graph != NoGraph && m.Weights == spec.EdgeWeightsBestConstant {
		v.Require(e.Agents <= maxSpectral, "agents",
			"is %d; want at most %d with best-constant weights: use metropolis or max-degree instead", e.Agents,
			maxSpectral)
	}
}

// whole reports an error unless all numbers of p are integers between low and high.
func whole(v *spec.ProblemList, key string, p PerAgent, low, high float64) {
	if p.Draw != "" {
		v.Require(p.least() >= low, key, "is %v; want at least %v", p, low)
		v.Require(p.most() <= high, key, "is %v; want at most %v", p, high)
		return
	}
	v.Require(len(p.Values) > 0, key, "is empty")
	for i, n := range p.Values {
		v.Require(n == math.Trunc(n) && n >= low && n <= high, element(key, p, i),
			"is %v; want a whole number from %v to %v", n, low, high)
	}
}

// element returns the configuration key of element i of a list.
func element(key string, p PerAgent, i int) string {
	if len(p.Values) == 1 {
		return key
	}
	return fmt.Sprintf("%s[%d]", key, i)
}
