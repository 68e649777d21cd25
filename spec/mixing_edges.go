package spec

// EdgeSource is the method that determines which agents are neighbours and average their parameters.
type EdgeSource string

// Methods that determine the neighbours of each agent.
const (
	// EdgesRadius connects agents within a radius of each other (FedDec paper, section 4).
	EdgesRadius EdgeSource = "radius"
	EdgesFile   EdgeSource = "file" // edges are read from a graph file in which each node is an agent
	// edges connect each agent with the next agent in id order, and the last agent with the first.
	EdgesRing       EdgeSource = "ring"
	EdgesComplete   EdgeSource = "complete"   // edges connect every pair of agents
	EdgesDiscovered EdgeSource = "discovered" // edges connect agents that have discovered each other
)

var edgeSources = []EdgeSource{EdgesRadius, EdgesFile, EdgesRing, EdgesComplete, EdgesDiscovered}

// UnmarshalText parses an edge source.
func (e *EdgeSource) UnmarshalText(text []byte) error { return parseEnum(e, text, edgeSources) }

// Validate returns an error if the edge source is unknown.
func (e EdgeSource) Validate() error { return checkEnum(e, edgeSources) }

// EdgeWeightRule is the rule for computing the weights of edges, with which neighbours average their parameters.
type EdgeWeightRule string

// Rules for edge weights.
const (
	// EdgeWeightsMetropolis sets the weight w_ij = 1/(1 + max(d_i, d_j)) on the edge between agents i and j, where d_i
	// and d_j are the numbers of neighbours of the two agents.
	EdgeWeightsMetropolis EdgeWeightRule = "metropolis"
	// EdgeWeightsBestConstant sets the weight 2/(λ₁+λ_{n−1}) on all edges, where λ₁ and λ_{n−1} are the largest and the
	// smallest positive eigenvalue of the graph Laplacian. No other constant weight converges faster (Xiao, Boyd 2004).
	EdgeWeightsBestConstant EdgeWeightRule = "best-constant"
	// EdgeWeightsMaxDegree sets the weight 1/(largest number of neighbours) on all edges (Xiao, Boyd 2004).
	EdgeWeightsMaxDegree EdgeWeightRule = "max-degree"
	// EdgeWeightsFastest sets the symmetric weights with the fastest convergence, some of which may be negative. They
	// minimise the second largest eigenvalue magnitude |λ₂| of the mixing matrix (Xiao, Boyd 2004).
	EdgeWeightsFastest EdgeWeightRule = "fastest"
)

var edgeRules = []EdgeWeightRule{EdgeWeightsMetropolis, EdgeWeightsBestConstant, EdgeWeightsMaxDegree,
	EdgeWeightsFastest}

// UnmarshalText parses an edge weight rule.
func (r *EdgeWeightRule) UnmarshalText(text []byte) error { return parseEnum(r, text, edgeRules) }

// Validate returns an error if the edge weight rule is unknown.
func (r EdgeWeightRule) Validate() error { return checkEnum(r, edgeRules) }
