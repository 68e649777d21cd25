package graph

import (
	"fmt"
	"math"
)

// Limits of the search for the fastest-mixing weights.
const (
	maxFastestWeightsEdges  = 2000 // each step solves a dense linear system of this size, about ten seconds in total
	fastestWeightsTolerance = 1e-6 // tolerance of |λ₂|, relative to the optimum
	maxFastestWeightsSteps  = 50   // usually about ten steps are needed
)

// ErrTooManyEdges reports a graph that is too large for [spec.EdgeWeightsFastest].
var ErrTooManyEdges = fmt.Errorf("at most %d edges are supported: use the weight rule best-constant instead",
	maxFastestWeightsEdges)

// fastestMixingWeights returns the symmetric weights with the smallest |λ₂| (Xiao and Boyd 2004, section 3.2: symmetric
// fastest distributed linear averaging). Edge weights and own weights may be negative. The search starts at the best
// constant weights, and its result is never worse.
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
