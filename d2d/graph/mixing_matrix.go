package graph

import (
	"errors"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// MixingMatrix is a graph with edge weights. It represents the mixing matrix W in which all links are up, and computes
// the mixing matrix W^t of a step t in which some links have failed.
type MixingMatrix struct {
	Graph       *Graph
	EdgeWeights []float64 // weight of each edge, in the order of Graph.Edges
	// whether the weights in W^t are computed from the degrees in the graph of active links
	usesActiveMetropolis bool
}

// NewMixingMatrix computes the edge weights of a graph by the given rule. [spec.EdgeWeightsBestConstant] and
// [spec.EdgeWeightsFastest] require a connected graph and return a [*DisconnectedError] for other graphs.
func NewMixingMatrix(g *Graph, rule spec.EdgeWeightRule) (*MixingMatrix, error) {
	weights, err := g.edgeWeightsByRule(rule)
	if err != nil {
		return nil, err
	}
	return &MixingMatrix{Graph: g, EdgeWeights: weights, usesActiveMetropolis: rule == spec.EdgeWeightsMetropolis}, nil
}

// NewMixingMatrixFromWeights returns a MixingMatrix with the given weights, one per edge in the order of g's edges. The
// weights must be finite.
func NewMixingMatrixFromWeights(g *Graph, weights []float64) (*MixingMatrix, error) {
	if len(weights) != len(g.edges) {
		return nil, fmt.Errorf("got %d weights for %d edges: one weight per edge is required",
			len(weights), len(g.edges))
	}
	for k, w := range weights {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("edge %s–%s: weight %v is not finite", g.NodeID(g.edges[k].I),
				g.NodeID(g.edges[k].J), w)
		}
	}
	return &MixingMatrix{Graph: g, EdgeWeights: weights}, nil
}

// ComputeActiveWeights stores the edge weights of the mixing matrix W^t in dst, for the links that are active in step
// t. The slice up contains true for each active link; the weight of a failed link is 0. W^t is always symmetric, and
// its rows and columns sum to 1. Metropolis weights are recomputed for the graph of active links. With other rules, the
// weight of a failed link is added to the own weights of the link's two nodes. The slice degrees is scratch space for
// one number per node.
func (m *MixingMatrix) ComputeActiveWeights(dst []float64, up []bool, degrees []int) {
	edges := m.Graph.edges
	if len(dst) != len(edges) || len(up) != len(edges) || len(degrees) != m.Graph.nodeCount {
		panic(errors.New("graph: ComputeActiveWeights requires one weight and one link state per edge and one degree " +
			"per node"))
	}
	if !m.usesActiveMetropolis {
		for k, w := range m.EdgeWeights {
			dst[k] = 0
			if up[k] {
				dst[k] = w
			}
		}
		return
	}
	clear(degrees)
	for k, e := range edges {
		if up[k] {
			degrees[e.I]++
			degrees[e.J]++
		}
	}
	metropolisWeights(dst, edges, degrees)
	for k := range dst {
		if !up[k] {
			dst[k] = 0
		}
	}
}
