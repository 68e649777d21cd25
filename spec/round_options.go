package spec

// Algorithm says who works in a training round.
type Algorithm string

// The algorithms.
const (
	// FedAvg is each recursion with a server in each round: L participants train and send.
	FedAvg Algorithm = "fedavg"
	// FedDec is feddec Algorithm 1: all K agents train and mix with their neighbours; L of them send to the server.
	FedDec Algorithm = "feddec"
)

var algorithms = []Algorithm{FedAvg, FedDec}

// UnmarshalText reads an algorithm.
func (a *Algorithm) UnmarshalText(text []byte) error { return parseEnum(a, text, algorithms) }

// Validate reports a word that is no algorithm.
func (a Algorithm) Validate() error { return checkEnum(a, algorithms) }

// ParticipantSampling says how the L participants are drawn from the K agents.
type ParticipantSampling string

// The samplings.
const (
	SamplingWithoutReplacement ParticipantSampling = "without_replacement" // ch5 (5.8)
	SamplingWithReplacement    ParticipantSampling = "with_replacement"    // a repeated draw counts twice
	// The same, in proportion to the lengths of the last updates.
	SamplingImportance ParticipantSampling = "importance"
)

var samplings = []ParticipantSampling{SamplingWithoutReplacement, SamplingWithReplacement, SamplingImportance}

// UnmarshalText reads a sampling.
func (s *ParticipantSampling) UnmarshalText(text []byte) error { return parseEnum(s, text, samplings) }

// Validate reports a word that is no sampling.
func (s ParticipantSampling) Validate() error { return checkEnum(s, samplings) }

// AgentWeightRule says how much each agent counts in the aggregate risk Σ p_k J_k.
type AgentWeightRule string

// The weights.
const (
	WeightsEqual   AgentWeightRule = "equal"   // p_k = 1/K
	WeightsSamples AgentWeightRule = "samples" // p_k in proportion to the agent's rows
)

var agentWeightRules = []AgentWeightRule{WeightsEqual, WeightsSamples}

// UnmarshalText reads weights.
func (w *AgentWeightRule) UnmarshalText(text []byte) error {
	return parseEnum(w, text, agentWeightRules)
}

// Validate reports a word that is no weights.
func (w AgentWeightRule) Validate() error { return checkEnum(w, agentWeightRules) }

// WeightPlacement says where p_k is applied; never at both places, which would give p_k².
type WeightPlacement string

// The places (2nd-order (5)).
const (
	WeightInStepSize   WeightPlacement = "step" // in the local step size, μ_k = μ·K·p_k/E_k
	WeightInServerMean WeightPlacement = "mean" // in the server's average, w + (K/L) Σ p_k Δ_k
)

var weightPlacements = []WeightPlacement{WeightInStepSize, WeightInServerMean}

// UnmarshalText reads a weighting.
func (w *WeightPlacement) UnmarshalText(text []byte) error {
	return parseEnum(w, text, weightPlacements)
}

// Validate reports a word that is no weighting.
func (w WeightPlacement) Validate() error { return checkEnum(w, weightPlacements) }
