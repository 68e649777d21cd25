package graph

import "gonum.org/v1/gonum/mat"

// expectedMetropolisSquare returns the expectation E[W²] of the squared mixing matrix W if each link is up
// independently with probability p. W has the Metropolis weights of the active links: w_ij = b_ij/(1 + max(D_i, D_j)),
// where b_ij is 1 if the link is up and otherwise 0, and D_i is the number of active links of node i.
//
// With W = I − L and L = Σ w_l a_l a_lᵀ, E[W²] = I − 2E[L] + E[L²], and a_l a_lᵀ a_k a_kᵀ vanishes unless the edges l
// and k share a node. Therefore only E[w_ij], E[w_ij²] and E[w_ij w_ik] for pairs of edges at a node are needed. To
// compute such a term, assume that the edges in the term are up, and distinguish whether the edge jk that closes the
// triangle is up. Then the other edges of the nodes i, j and k are disjoint, and the numbers of active edges among them
// are independent binomial random numbers. The cost is O(Σ_i d_i² max d) for nodes with d_i links.
func expectedMetropolisSquare(g *Graph, p float64) *mat.SymDense {
	e := newActiveDegreeDistributions(g, p)
	square := addScaledIdentity(mat.NewSymDense(g.nodeCount, nil), 1)
	add := func(i, j int, v float64) { square.SetSym(i, j, square.At(i, j)+v) }
	for _, edge := range g.edges {
		i, j := edge.I, edge.J
		// For a = e_i − e_j, the square of a aᵀ is 2 a aᵀ.
		c := -2*e.expectedWeight(i, j) + 2*e.expectedSquaredWeight(i, j)
		add(i, i, c)
		add(j, j, c)
		add(i, j, -c)
	}
	for i, neighbours := range e.neighborsByNode {
		for x, j := range neighbours {
			for _, k := range neighbours[:x] {
				// With a = e_i − e_j and b = e_i − e_k, the product aᵀb is 1, and E[L²] contains both orders of the
				// product, abᵀ and baᵀ.
				c := e.expectedWeightProduct(i, j, k)
				add(i, i, 2*c)
				add(i, j, -c)
				add(i, k, -c)
				add(j, k, c)
			}
		}
	}
	return square
}

// activeDegreeDistributions holds the distributions of the node degrees under link failures.
type activeDegreeDistributions struct {
	linkUpProbability   float64
	neighborsByNode     [][]int
	isAdjacent          [][]bool
	binomialByLinkCount [][]float64 // probability that x of n links are up, at the indices [n][x]
	// values for n links at the indices [n][a + offset·stride]; see expectedInverseMax
	inverseMaxByLinkCount [][]float64
	inverseMaxStride      int
}

func newActiveDegreeDistributions(g *Graph, p float64) *activeDegreeDistributions {
	e := &activeDegreeDistributions{linkUpProbability: p, neighborsByNode: make([][]int, g.nodeCount),
		isAdjacent: make([][]bool, g.nodeCount)}
	for i := range e.isAdjacent {
		e.isAdjacent[i] = make([]bool, g.nodeCount)
	}
	for _, edge := range g.edges {
		i, j := edge.I, edge.J
		e.neighborsByNode[i], e.neighborsByNode[j] = append(e.neighborsByNode[i], j), append(e.neighborsByNode[j], i)
		e.isAdjacent[i][j], e.isAdjacent[j][i] = true, true
	}
	most := g.DegreeStats().Max
	e.inverseMaxStride = most + 1
	for n := range most + 1 {
		e.binomialByLinkCount = append(e.binomialByLinkCount, binomialDistribution(e.binomialByLinkCount, n, p))
		e.inverseMaxByLinkCount = append(e.inverseMaxByLinkCount, e.newInverseMaxTable(n))
	}
	return e
}

// binomialDistribution returns the binomial distribution of the number of active links among n links, computed from the
// distribution for n−1 links.
func binomialDistribution(smaller [][]float64, n int, p float64) []float64 {
	b := make([]float64, n+1)
	if n == 0 {
		b[0] = 1
		return b
	}
	for x, q := range smaller[n-1] {
		b[x] += q * (1 - p)
		b[x+1] += q * p
	}
	return b
}

// newInverseMaxTable tabulates the expectation E[1/(1 + max(a, offset + X))], where X is the binomial number of active
// links among n links. The table covers all numbers a up to the maximum degree, and the offsets 1 and 2.
func (e *activeDegreeDistributions) newInverseMaxTable(n int) []float64 {
	table := make([]float64, 2*e.inverseMaxStride)
	for offset := range 2 {
		for a := range e.inverseMaxStride {
			for x, q := range e.binomialByLinkCount[n] {
				table[offset*e.inverseMaxStride+a] += q / float64(1+max(a, 1+offset+x))
			}
		}
	}
	return table
}

// expectedInverseMax returns the expectation E[1/(1 + max(a, offset + X))], where X is the binomial number of active
// links among n links. The parameter offset must be 1 or 2.
func (e *activeDegreeDistributions) expectedInverseMax(a, offset, n int) float64 {
	return e.inverseMaxByLinkCount[n][(offset-1)*e.inverseMaxStride+a]
}

// expectedWeight returns E[w_ij], the expected Metropolis weight of the edge between nodes i and j.
func (e *activeDegreeDistributions) expectedWeight(i, j int) float64 {
	sum := 0.0
	for x, q := range e.binomialByLinkCount[len(e.neighborsByNode[i])-1] {
		sum += q * e.expectedInverseMax(1+x, 1, len(e.neighborsByNode[j])-1)
	}
	return e.linkUpProbability * sum
}

// expectedSquaredWeight returns E[w_ij²], the expected square of the Metropolis weight of the edge between nodes i and
// j.
func (e *activeDegreeDistributions) expectedSquaredWeight(i, j int) float64 {
	sum := 0.0
	for x, q := range e.binomialByLinkCount[len(e.neighborsByNode[i])-1] {
		for y, r := range e.binomialByLinkCount[len(e.neighborsByNode[j])-1] {
			w := 1 / float64(1+max(1+x, 1+y))
			sum += q * r * w * w
		}
	}
	return e.linkUpProbability * sum
}

// expectedWeightProduct returns E[w_ij w_ik], the expected product of the Metropolis weights of two edges at node i,
// which lead to the nodes j and k.
func (e *activeDegreeDistributions) expectedWeightProduct(i, j, k int) float64 {
	closing, closed := 0, 1.0-e.linkUpProbability
	if e.isAdjacent[j][k] {
		closing = 1
	} else {
		closed = 1
	}
	j, k = len(e.neighborsByNode[j])-1-closing, len(e.neighborsByNode[k])-1-closing
	sum := 0.0
	for up := 0; up <= closing; up++ {
		part := 0.0
		for x, q := range e.binomialByLinkCount[len(e.neighborsByNode[i])-2] {
			part += q * e.expectedInverseMax(2+x, 1+up, j) * e.expectedInverseMax(2+x, 1+up, k)
		}
		sum += closed * part
		closed = e.linkUpProbability
	}
	return e.linkUpProbability * e.linkUpProbability * sum
}
