package spec

// EdgeSource is the source of the edges of the graph in which agents average parameters with their neighbours.
type EdgeSource string

// Sources of edges.
const (
	// Edges connect agents within a radius of each other (feddec section 4).
	EdgesRadius     EdgeSource = "radius"
	EdgesFile       EdgeSource = "file"       // edges are read from a graph file whose nodes are agents
	EdgesRing       EdgeSource = "ring"       // edges connect each agent with the next one in id order
	EdgesComplete   EdgeSource = "complete"   // edges connect every pair of agents
	EdgesDiscovered EdgeSource = "discovered" // edges connect agents that have discovered each other
)

var edgeSources = []EdgeSource{EdgesRadius, EdgesFile, EdgesRing, EdgesComplete, EdgesDiscovered}

// UnmarshalText parses an edge source.
func (e *EdgeSource) UnmarshalText(text []byte) error { return parseEnum(e, text, edgeSources) }

// Validate returns an error if the edge source is unknown.
func (e EdgeSource) Validate() error { return checkEnum(e, edgeSources) }

// EdgeWeightRule is the rule for the weights of mixing edges.
type EdgeWeightRule string

// Rules for edge weights.
const (
	// EdgeWeightsMetropolis sets the weight w_ij = 1/(1 + max(d_i, d_j)) on the edge between agents i and j, where d_i
	// is the number of neighbours of agent i.
	EdgeWeightsMetropolis EdgeWeightRule = "metropolis"
	// EdgeWeightsBestConstant sets the same weight 2/(λ₁+λ_{n−1}) on all edges, where λ are the eigenvalues of the
	// graph's Laplacian. This is the constant weight with the fastest convergence (Xiao, Boyd 2004).
	EdgeWeightsBestConstant EdgeWeightRule = "best-constant"
	// Same weight on all edges: 1/(largest number of neighbours) (Xiao, Boyd 2004).
	EdgeWeightsMaxDegree EdgeWeightRule = "max-degree"
	// EdgeWeightsFastest sets the symmetric weights, possibly negative, with the fastest convergence: they minimise
	// |λ₂|, the second largest eigenvalue magnitude of the mixing matrix (Xiao, Boyd 2004).
	EdgeWeightsFastest EdgeWeightRule = "fastest"
)

var edgeRules = []EdgeWeightRule{EdgeWeightsMetropolis, EdgeWeightsBestConstant, EdgeWeightsMaxDegree,
	EdgeWeightsFastest}

// UnmarshalText parses an edge weight rule.
func (r *EdgeWeightRule) UnmarshalText(text []byte) error { return parseEnum(r, text, edgeRules) }

// Validate returns an error if the edge weight rule is unknown.
func (r EdgeWeightRule) Validate() error { return checkEnum(r, edgeRules) }
