package graph

import (
	"fmt"
	"math"
)

// Limits of the search for the fastest-mixing weights.
const (
	// each step solves a dense linear system with one row per edge, about ten seconds in total for this number of
	// edges.
	maxFastestWeightsEdges  = 2000
	fastestWeightsTolerance = 1e-6 // tolerance of the result |λ₂|, relative to the optimum
	maxFastestWeightsSteps  = 50   // usually about ten steps are needed
)

// ErrTooManyEdges is the error for a graph that has too many edges for the weight rule [spec.EdgeWeightsFastest].
var ErrTooManyEdges = fmt.Errorf("at most %d edges are supported: use the weight rule best-constant instead",
	maxFastestWeightsEdges)

// fastestMixingWeights returns the symmetric edge weights with the smallest |λ₂|, the second largest absolute
// eigenvalue of the mixing matrix (Xiao and Boyd 2004, section 3.2: symmetric fastest distributed linear averaging).
// Edge weights and nodes' own weights may be negative. The search starts at the best constant weights, and its result
// is never worse than these weights.
func fastestMixingWeights(g *Graph) ([]float64, error) {
	if err := g.RequireConnected(); err != nil {
		return nil, fmt.Errorf("fastest-mixing weights: %w", err)
	}
	if len(g.edges) > maxFastestWeightsEdges {
		return nil, fmt.Errorf("fastest-mixing weights: the graph has %d edges, but %w", len(g.edges), ErrTooManyEdges)
	}
	best, err := bestConstantWeights(g)
	if err != nil {
		return nil, err
	}
	bestNorm := absSecondEigenvalue(g, best)
	if bestNorm < 1e-12 {
		return best, nil
	}
	p := newFastestMixingSDP(g, best, 2*bestNorm)
	for range maxFastestWeightsSteps {
		if p.dualityGap() <= fastestWeightsTolerance*p.eigenvalueBound() || !p.interiorPointStep() {
			break
		}
	}
	if weights := p.edgeWeights(); absSecondEigenvalue(g, weights) < bestNorm {
		return weights, nil
	}
	return best, nil
}

// absSecondEigenvalue returns |λ₂|, the second largest absolute eigenvalue of the mixing matrix with the given edge
// weights.
func absSecondEigenvalue(g *Graph, weights []float64) float64 {
	return math.Sqrt((&MixingMatrix{Graph: g, EdgeWeights: weights}).SecondEigenvalue(1))
}
