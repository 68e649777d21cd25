package graph

import (
	"errors"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// MixingMatrix is a graph with the weights of its edges: the matrix W when all links are up, and how W^t follows from
// the links that are.
type MixingMatrix struct {
	Graph                *Graph
	EdgeWeights          []float64 // one an edge
	usesActiveMetropolis bool      // W^t is made anew from the degrees of the active graph, by Metropolis
}

// NewMixingMatrix weighs the edges of a graph by a rule. [spec.EdgeWeightsBestConstant] and [spec.EdgeWeightsFastest]
// need a connected graph and fail with a [*DisconnectedError] on others.
func NewMixingMatrix(g *Graph, rule spec.EdgeWeightRule) (*MixingMatrix, error) {
	weights, err := g.edgeWeightsByRule(rule)
	if err != nil {
		return nil, err
	}
	return &MixingMatrix{Graph: g, EdgeWeights: weights, usesActiveMetropolis: rule == spec.EdgeWeightsMetropolis}, nil
}

// NewMixingMatrixFromWeights is the mixing by weights from elsewhere, one an edge in the order of g's edges. They must
// be finite.
func NewMixingMatrixFromWeights(g *Graph, weights []float64) (*MixingMatrix, error) {
	if len(weights) != len(g.edges) {
		return nil, fmt.Errorf("%d weights for %d edges", len(weights), len(g.edges))
	}
	for k, w := range weights {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("edge %s–%s: weight %v is not finite", g.NodeID(g.edges[k].I),
				g.NodeID(g.edges[k].J), w)
		}
	}
	return &MixingMatrix{Graph: g, EdgeWeights: weights}, nil
}

// ComputeActiveWeights stores in dst the weights of W^t when up tells which links are, one an edge; a link that is down
// weighs 0. It is symmetric and doubly stochastic whatever is up. Metropolis weights are those of the active graph; all
// others stay, and the weight of a link that is down goes to the own weights of its ends. degrees is scratch for one
// number a node.
func (m *MixingMatrix) ComputeActiveWeights(dst []float64, up []bool, degrees []int) {
	edges := m.Graph.edges
	if len(dst) != len(edges) || len(up) != len(edges) || len(degrees) != m.Graph.nodeCount {
		panic(errors.New("graph: ActiveTo wants one weight and one link state an edge, and one degree a node"))
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
