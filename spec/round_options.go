package spec

// Algorithm is the federated learning algorithm of training rounds.
type Algorithm string

// Federated learning algorithms.
const (
	// FedAvg is federated averaging: in each round, L drawn agents train and send their updates, which the server
	// averages.
	FedAvg Algorithm = "fedavg"
	// FedDec is Algorithm 1 of the FedDec paper. All K agents train and average their parameters with their neighbours,
	// and L of the agents send updates to the server.
	FedDec Algorithm = "feddec"
)

var algorithms = []Algorithm{FedAvg, FedDec}

// UnmarshalText parses an algorithm.
func (a *Algorithm) UnmarshalText(text []byte) error { return parseEnum(a, text, algorithms) }

// Validate returns an error if the algorithm is unknown.
func (a Algorithm) Validate() error { return checkEnum(a, algorithms) }

// ParticipantSampling is the method of drawing the L participants of a round from the K agents.
type ParticipantSampling string

// Sampling methods.
const (
	// SamplingWithoutReplacement draws agents uniformly, each at most once per round (ch5, equation (5.8)).
	SamplingWithoutReplacement ParticipantSampling = "without_replacement"
	// SamplingWithReplacement draws agents uniformly with replacement. An agent may be drawn several times in a round.
	SamplingWithReplacement ParticipantSampling = "with_replacement"
	// SamplingImportance draws agents with replacement, with probabilities proportional to the norms of their last
	// updates.
	SamplingImportance ParticipantSampling = "importance"
)

var samplings = []ParticipantSampling{SamplingWithoutReplacement, SamplingWithReplacement, SamplingImportance}

// UnmarshalText parses a sampling method.
func (s *ParticipantSampling) UnmarshalText(text []byte) error { return parseEnum(s, text, samplings) }

// Validate returns an error if the sampling method is unknown.
func (s ParticipantSampling) Validate() error { return checkEnum(s, samplings) }

// AgentWeightRule is the rule for the weights p_k of the agents k in the aggregate risk Σ p_k J_k, where J_k is the
// risk of agent k.
type AgentWeightRule string

// Rules for agent weights.
const (
	WeightsEqual   AgentWeightRule = "equal"   // all K agents have the same weight p_k = 1/K
	WeightsSamples AgentWeightRule = "samples" // the weight p_k is proportional to the agent's number of rows
)

var agentWeightRules = []AgentWeightRule{WeightsEqual, WeightsSamples}

// UnmarshalText parses an agent weight rule.
func (w *AgentWeightRule) UnmarshalText(text []byte) error {
	return parseEnum(w, text, agentWeightRules)
}

// Validate returns an error if the agent weight rule is unknown.
func (w AgentWeightRule) Validate() error { return checkEnum(w, agentWeightRules) }

// WeightPlacement determines whether the agent's weight p_k is applied in the local step size or in the server's
// average.
type WeightPlacement string

// Places where the weight p_k of agent k is applied (2nd-order paper, equation (5)).
const (
	// WeightInStepSize multiplies the local step size of agent k by the agent's weight: μ_k = μ·K·p_k/E_k, where K is
	// the number of agents and E_k is the number of local steps.
	WeightInStepSize WeightPlacement = "step"
	// WeightInServerMean multiplies the updates Δ_k by the agents' weights p_k in the server's average w + (K/L) Σ p_k
	// Δ_k over L of K agents.
	WeightInServerMean WeightPlacement = "mean"
)

var weightPlacements = []WeightPlacement{WeightInStepSize, WeightInServerMean}

// UnmarshalText parses a weight placement.
func (w *WeightPlacement) UnmarshalText(text []byte) error {
	return parseEnum(w, text, weightPlacements)
}

// Validate returns an error if the weight placement is unknown.
func (w WeightPlacement) Validate() error { return checkEnum(w, weightPlacements) }
