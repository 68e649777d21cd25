package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/d2d"
)

// Edge is an undirected edge that joins the nodes I and J, where I < J.
type Edge struct{ I, J int }

// Point is a position in the plane. In the experiments, positions lie in the unit square.
type Point struct{ X, Y float64 }

// Graph is an immutable undirected graph without loops (edges from a node to itself). Its nodes are numbered from 0.
type Graph struct {
	nodeCount     int
	edges         []Edge
	nodeIDs       []string // names of the nodes; nil means that each name is the node's number
	nodePositions []Point  // positions of the nodes; nil means that the positions are unknown
}

// New returns a graph of n nodes with the given edges, which may be in any order and direction. It returns an error for
// an unknown node, a loop or a duplicate edge.
func New(n int, edges []Edge) (*Graph, error) {
	sorted := slices.Clone(edges)
	for k, e := range sorted {
		if e.I > e.J {
			e.I, e.J = e.J, e.I
			sorted[k] = e
		}
		if e.I < 0 || e.J >= n {
			return nil, fmt.Errorf("edge %d–%d refers to an unknown node: nodes are numbered from 0 to %d",
				edges[k].I, edges[k].J, n-1)
		}
		if e.I == e.J {
			return nil, fmt.Errorf("edge %d–%d connects a node to itself", e.I, e.J)
		}
	}
	slices.SortFunc(sorted, func(a, b Edge) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) })
	for k := 1; k < len(sorted); k++ {
		if sorted[k] == sorted[k-1] {
			return nil, fmt.Errorf("duplicate edge %d–%d", sorted[k].I, sorted[k].J)
		}
	}
	return &Graph{nodeCount: n, edges: sorted}, nil
}

// graphFromPredicate returns the graph of n nodes in which the nodes i < j are joined by an edge if joined(i, j) is
// true. It calls joined in lexicographic order.
func graphFromPredicate(n int, joined func(i, j int) bool) *Graph {
	g := &Graph{nodeCount: n}
	for i := range n {
		for j := i + 1; j < n; j++ {
			if joined(i, j) {
				g.edges = append(g.edges, Edge{i, j})
			}
		}
	}
	return g
}

// NodeCount returns the number of nodes.
func (g *Graph) NodeCount() int { return g.nodeCount }

// Edges returns the edges in lexicographic order. The caller must not modify them.
func (g *Graph) Edges() []Edge { return g.edges }

// Positions returns the positions of the nodes, or nil if the positions are unknown. The caller must not modify the
// result.
func (g *Graph) Positions() []Point { return g.nodePositions }

// NodeID returns the name of node i, which is the number i unless the graph was read from a file with other names.
func (g *Graph) NodeID(i int) string {
	if g.nodeIDs == nil {
		return strconv.Itoa(i)
	}
	return g.nodeIDs[i]
}

// Adjacency returns the graph's adjacency lists for the mixing functions of package d2d. The edges in the lists have
// the same numbers as in the graph.
func (g *Graph) Adjacency() *d2d.Adjacency {
	pairs := make([][2]int, len(g.edges))
	for k, e := range g.edges {
		pairs[k] = [2]int{e.I, e.J}
	}
	return d2d.NewAdjacency(g.nodeCount, pairs)
}

// Degrees returns the number of edges at each node.
func (g *Graph) Degrees() []int {
	degrees := make([]int, g.nodeCount)
	for _, e := range g.edges {
		degrees[e.I]++
		degrees[e.J]++
	}
	return degrees
}

// DegreeStats holds the minimum, mean and maximum degree of a graph.
type DegreeStats struct {
	Min, Max int
	Mean     float64
}

// DegreeStats returns the minimum, mean and maximum degree of the nodes. All values are 0 for a graph without nodes.
func (g *Graph) DegreeStats() DegreeStats {
	if g.nodeCount == 0 {
		return DegreeStats{}
	}
	degrees := g.Degrees()
	return DegreeStats{Min: slices.Min(degrees), Max: slices.Max(degrees),
		Mean: 2 * float64(len(g.edges)) / float64(g.nodeCount)}
}
