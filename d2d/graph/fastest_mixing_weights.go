package graph

import (
	"fmt"
	"math"
)

// The bounds of the search for the fastest weights.
const (
	maxFastestWeightsEdges  = 2000 // a step solves a dense system of this size: ten seconds in all
	fastestWeightsTolerance = 1e-6 // how far |λ₂| may be above the optimum, relative to it
	maxFastestWeightsSteps  = 50   // about ten are needed
)

// ErrTooManyEdges says that [spec.EdgeWeightsFastest] weights cannot be had of a graph.
var ErrTooManyEdges = fmt.Errorf("the search is bounded to %d: use best-constant weights", maxFastestWeightsEdges)

// fastestMixingWeights are the symmetric weights of the smallest |λ₂| (Xiao and Boyd 2004, section 3.2: symmetric
// fastest distributed linear averaging). Weights and own weights may come out negative. The search starts at the best
// constant, and its result is never worse.
func fastestMixingWeights(g *Graph) ([]float64, error) {
	if err := g.RequireConnected(); err != nil {
		return nil, fmt.Errorf("fastest-mixing weights: %w", err)
	}
	if len(g.edges) > maxFastestWeightsEdges {
		return nil, fmt.Errorf("fastest-mixing weights: the graph has %d edges, and %w", len(g.edges), ErrTooManyEdges)
	}
	best, err := bestConstantWeights(g)
	if err != nil {
		return nil, err
	}
	bestNorm := absSecondEigenvalue(g, best)
	if bestNorm < 1e-12 { // a complete graph agrees in one step
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

// absSecondEigenvalue is |λ₂| of W.
func absSecondEigenvalue(g *Graph, weights []float64) float64 {
	return math.Sqrt((&MixingMatrix{Graph: g, EdgeWeights: weights}).SecondEigenvalue(1))
}
