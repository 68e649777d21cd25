package graph

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// edgeWeightsByRule returns the edge weights that a rule computes, one weight per edge.
func (g *Graph) edgeWeightsByRule(rule spec.EdgeWeightRule) ([]float64, error) {
	switch rule {
	case spec.EdgeWeightsMetropolis:
		return metropolisWeights(make([]float64, len(g.edges)), g.edges, g.Degrees()), nil
	case spec.EdgeWeightsBestConstant:
		return bestConstantWeights(g)
	case spec.EdgeWeightsMaxDegree:
		return constantWeights(g, 1/float64(max(g.DegreeStats().Max, 1))), nil
	case spec.EdgeWeightsFastest:
		return fastestMixingWeights(g)
	}
	return nil, fmt.Errorf("unknown weight rule %q", rule)
}

func metropolisWeights(dst []float64, edges []Edge, degrees []int) []float64 {
	for k, e := range edges {
		dst[k] = 1 / float64(1+max(degrees[e.I], degrees[e.J]))
	}
	return dst
}

func constantWeights(g *Graph, weight float64) []float64 {
	weights := make([]float64, len(g.edges))
	for k := range weights {
		weights[k] = weight
	}
	return weights
}

// bestConstantWeights returns one constant weight a for all edges, which minimises max(|1 − aλ₁|, |1 − aλ_{n−1}|). Here
// λ₁ and λ_{n−1} are the largest and the smallest nonzero eigenvalue of the graph's Laplacian. For λ_{n−1} = 0, no
// constant weight makes the graph mix.
func bestConstantWeights(g *Graph) ([]float64, error) {
	if err := g.RequireConnected(); err != nil {
		return nil, fmt.Errorf("best-constant weights: %w", err)
	}
	if g.nodeCount == 1 {
		return nil, nil
	}
	if g.nodeCount > maxDenseNodes {
		low, high := extremeEigenvalues(g.nodeCount, laplacianProduct(g, constantWeights(g, 1)))
		return constantWeights(g, 2/(low+high)), nil
	}
	lambda := LaplacianSpectrum(g)
	return constantWeights(g, 2/(lambda[0]+lambda[g.nodeCount-2])), nil
}

// CapNodeWeightSums reduces edge weights w_ij, symmetrically, until the sum Σ_j |w_ij| of each node i is at most 1. It
// divides each weight by the larger sum of the edge's two ends if that sum is above 1. Mixing with late flows requires
// such weights. Metropolis and maximum-degree weights do not change. The slices dst and weights may be the same.
func CapNodeWeightSums(dst []float64, g *Graph, weights []float64) {
	sums := make([]float64, g.nodeCount)
	for k, e := range g.edges {
		sums[e.I] += math.Abs(weights[k])
		sums[e.J] += math.Abs(weights[k])
	}
	for k, e := range g.edges {
		dst[k] = weights[k] / max(1, sums[e.I], sums[e.J])
	}
}
