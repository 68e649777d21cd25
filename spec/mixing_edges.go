package spec

// EdgeSource names the source of the edges along which agents mix.
type EdgeSource string

// The sources of edges.
const (
	EdgesRadius     EdgeSource = "radius"     // agents nearer to each other than a radius (feddec section 4)
	EdgesFile       EdgeSource = "file"       // a graph file whose nodes are agents
	EdgesRing       EdgeSource = "ring"       // each agent and the next in id order
	EdgesComplete   EdgeSource = "complete"   // all with all
	EdgesDiscovered EdgeSource = "discovered" // agents that have found each other: both ends say so
)

var edgeSources = []EdgeSource{EdgesRadius, EdgesFile, EdgesRing, EdgesComplete, EdgesDiscovered}

// UnmarshalText reads a source of edges.
func (e *EdgeSource) UnmarshalText(text []byte) error { return parseEnum(e, text, edgeSources) }

// Validate reports a word that is no source of edges.
func (e EdgeSource) Validate() error { return checkEnum(e, edgeSources) }

// EdgeWeightRule says how the weights of the edges are chosen.
type EdgeWeightRule string

// The rules.
const (
	// EdgeWeightsMetropolis: w_ij = 1/(1 + max(d_i, d_j)); an edge needs only the degrees of its two ends.
	EdgeWeightsMetropolis EdgeWeightRule = "metropolis"
	// EdgeWeightsBestConstant: the same weight for all, 2/(λ₁+λ_{n−1}) with eigenvalues of the Laplacian, which of all
	// constants gives the mixing matrix the smallest |λ₂| (Xiao, Boyd 2004).
	EdgeWeightsBestConstant EdgeWeightRule = "best-constant"
	EdgeWeightsMaxDegree    EdgeWeightRule = "max-degree" // the same weight for all, 1/max d_i (Xiao, Boyd 2004)
	// EdgeWeightsFastest: the symmetric weights, negative ones too, that give it the smallest |λ₂| (Xiao, Boyd 2004).
	EdgeWeightsFastest EdgeWeightRule = "fastest"
)

var edgeRules = []EdgeWeightRule{EdgeWeightsMetropolis, EdgeWeightsBestConstant, EdgeWeightsMaxDegree,
	EdgeWeightsFastest}

// UnmarshalText reads a rule.
func (r *EdgeWeightRule) UnmarshalText(text []byte) error { return parseEnum(r, text, edgeRules) }

// Validate reports a word that is no rule.
func (r EdgeWeightRule) Validate() error { return checkEnum(r, edgeRules) }
