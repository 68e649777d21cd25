package graph

import (
	"fmt"
	"math"
)

// Rule is how the weights of the edges are chosen.
type Rule uint8

// The rules.
const (
	Metropolis Rule = iota // w_ij = 1/(1 + max(d_i, d_j)): an edge needs the degrees of its two ends only
	// BestConstant: the same weight for all, 2/(λ₁+λ_{n−1}) of the Laplacian: the smallest |λ₂| of such (Xiao, Boyd
	// 2004).
	BestConstant
	MaxDegree // the same weight for all, 1/max d_i (Xiao, Boyd 2004)
	Fastest   // the smallest |λ₂| of all symmetric weights, negative ones too (Xiao, Boyd 2004)
)

var ruleNames = []string{"metropolis", "best-constant", "max-degree", "fastest"}

// String is the name of the rule in configuration and logs.
func (r Rule) String() string {
	if int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return fmt.Sprintf("Rule(%d)", uint8(r))
}

// ParseRule is the inverse of String.
func ParseRule(name string) (Rule, error) {
	for r, known := range ruleNames {
		if name == known {
			return Rule(r), nil
		}
	}
	return 0, fmt.Errorf("unknown rule of weights %q: want one of %s", name, some(ruleNames, ", ", len(ruleNames)))
}

// weights are those of a rule on a graph, one an edge.
func (r Rule) weights(g *Graph) ([]float64, error) {
	switch r {
	case Metropolis:
		return metropolis(make([]float64, len(g.edges)), g.edges, g.Degrees()), nil
	case BestConstant:
		return bestConstant(g)
	case MaxDegree:
		return constant(g, 1/float64(max(g.DegreeStats().Max, 1))), nil
	case Fastest:
		return fastest(g)
	}
	return nil, fmt.Errorf("unknown rule of weights %d", uint8(r))
}

func metropolis(dst []float64, edges []Edge, degrees []int) []float64 {
	for k, e := range edges {
		dst[k] = 1 / float64(1+max(degrees[e.I], degrees[e.J]))
	}
	return dst
}

func constant(g *Graph, weight float64) []float64 {
	weights := make([]float64, len(g.edges))
	for k := range weights {
		weights[k] = weight
	}
	return weights
}

// bestConstant minimises max(|1 − aλ₁|, |1 − aλ_{n−1}|) over a, the largest and the smallest nonzero eigenvalue of the
// Laplacian. With a λ_{n−1} of 0 there is nothing to minimise.
func bestConstant(g *Graph) ([]float64, error) {
	if err := g.RequireConnected(); err != nil {
		return nil, fmt.Errorf("best-constant weights: %w", err)
	}
	if g.nodes == 1 {
		return nil, nil
	}
	if g.nodes > denseNodes {
		low, high := ends(g.nodes, applyLaplacian(g, constant(g, 1)))
		return constant(g, 2/(low+high)), nil
	}
	lambda := LaplacianSpectrum(g)
	return constant(g, 2/(lambda[0]+lambda[g.nodes-2])), nil
}

// ScaleForLive scales the weights down symmetrically until no node's neighbours weigh more than 1 together: an edge is
// divided by the larger of its ends' sums Σ_j |w_ij|, where that is above 1. Live mixing, whose flows may be late,
// needs it; Metropolis and maximum-degree weights stay as they are. dst may be weights.
func ScaleForLive(dst []float64, g *Graph, weights []float64) {
	sums := make([]float64, g.nodes)
	for k, e := range g.edges {
		sums[e.I] += math.Abs(weights[k])
		sums[e.J] += math.Abs(weights[k])
	}
	for k, e := range g.edges {
		dst[k] = weights[k] / max(1, sums[e.I], sums[e.J])
	}
}
