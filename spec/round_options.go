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

// Sampling says how the L participants are drawn from the K agents.
type Sampling string

// The samplings.
const (
	WithoutReplacement Sampling = "without_replacement" // ch5 (5.8)
	WithReplacement    Sampling = "with_replacement"    // a repeated draw counts twice
	Importance         Sampling = "importance"          // the same, in proportion to the lengths of the last updates
)

var samplings = []Sampling{WithoutReplacement, WithReplacement, Importance}

// UnmarshalText reads a sampling.
func (s *Sampling) UnmarshalText(text []byte) error { return parseEnum(s, text, samplings) }

// Validate reports a word that is no sampling.
func (s Sampling) Validate() error { return checkEnum(s, samplings) }

// AgentWeightRule says how much each agent counts in the aggregate risk Σ p_k J_k.
type AgentWeightRule string

// The weights.
const (
	WeightsEqual   AgentWeightRule = "equal"   // p_k = 1/K
	WeightsSamples AgentWeightRule = "samples" // p_k in proportion to the agent's rows
)

var weights = []AgentWeightRule{WeightsEqual, WeightsSamples}

// UnmarshalText reads weights.
func (w *AgentWeightRule) UnmarshalText(text []byte) error { return parseEnum(w, text, weights) }

// Validate reports a word that is no weights.
func (w AgentWeightRule) Validate() error { return checkEnum(w, weights) }

// WeightPlacement says where p_k is applied; never at both places, which would give p_k².
type WeightPlacement string

// The places (2nd-order (5)).
const (
	WeightingStep WeightPlacement = "step" // in the local step size, μ_k = μ·K·p_k/E_k
	WeightingMean WeightPlacement = "mean" // in the server's average, w + (K/L) Σ p_k Δ_k
)

var weightings = []WeightPlacement{WeightingStep, WeightingMean}

// UnmarshalText reads a weighting.
func (w *WeightPlacement) UnmarshalText(text []byte) error { return parseEnum(w, text, weightings) }

// Validate reports a word that is no weighting.
func (w WeightPlacement) Validate() error { return checkEnum(w, weightings) }
