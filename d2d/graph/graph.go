package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/d2d"
)

// Edge joins nodes I and J, I < J.
type Edge struct{ I, J int }

// Point is a place in the plane; in the experiments, in the unit square.
type Point struct{ X, Y float64 }

// Graph is an undirected graph without loops whose nodes are numbered from 0. It does not change once it is made.
type Graph struct {
	nodeCount     int
	edges         []Edge
	nodeIDs       []string // nil: the numbers
	nodePositions []Point  // nil: unknown
}

// New makes a graph of n nodes with these edges, whose ends and whose order may be anything. It fails on an end that is
// not among the nodes, on a loop and on an edge that is there twice.
func New(n int, edges []Edge) (*Graph, error) {
	sorted := slices.Clone(edges)
	for k, e := range sorted {
		if e.I > e.J {
			e.I, e.J = e.J, e.I
			sorted[k] = e
		}
		if e.I < 0 || e.J >= n {
			return nil, fmt.Errorf("edge %d–%d: the nodes are 0 to %d", edges[k].I, edges[k].J, n-1)
		}
		if e.I == e.J {
			return nil, fmt.Errorf("edge %d–%d joins a node with itself", e.I, e.J)
		}
	}
	slices.SortFunc(sorted, func(a, b Edge) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) })
	for k := 1; k < len(sorted); k++ {
		if sorted[k] == sorted[k-1] {
			return nil, fmt.Errorf("edge %d–%d is there twice", sorted[k].I, sorted[k].J)
		}
	}
	return &Graph{nodeCount: n, edges: sorted}, nil
}

// graphFromPredicate makes the graph of n nodes in which nodes i < j are joined when joined(i, j); it asks in
// lexicographic order.
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

// NodeCount is the number of nodes.
func (g *Graph) NodeCount() int { return g.nodeCount }

// Edges are the edges in lexicographic order. The caller must not change them.
func (g *Graph) Edges() []Edge { return g.edges }

// Positions are the places of the nodes, or nil. The caller must not change them.
func (g *Graph) Positions() []Point { return g.nodePositions }

// NodeID is the name of a node: its number, unless the graph came from a file with other names.
func (g *Graph) NodeID(i int) string {
	if g.nodeIDs == nil {
		return strconv.Itoa(i)
	}
	return g.nodeIDs[i]
}

// Adjacency are the edges as the mixing kernel wants them; edge k of the one is edge k of the other.
func (g *Graph) Adjacency() *d2d.Adjacency {
	pairs := make([][2]int, len(g.edges))
	for k, e := range g.edges {
		pairs[k] = [2]int{e.I, e.J}
	}
	return d2d.NewAdjacency(g.nodeCount, pairs)
}

// Degrees are the numbers of edges at each node.
func (g *Graph) Degrees() []int {
	degrees := make([]int, g.nodeCount)
	for _, e := range g.edges {
		degrees[e.I]++
		degrees[e.J]++
	}
	return degrees
}

// DegreeStats is the smallest, mean and largest number of neighbours.
type DegreeStats struct {
	Min, Max int
	Mean     float64
}

// DegreeStats summarises the degrees; all zero without nodes.
func (g *Graph) DegreeStats() DegreeStats {
	if g.nodeCount == 0 {
		return DegreeStats{}
	}
	degrees := g.Degrees()
	return DegreeStats{Min: slices.Min(degrees), Max: slices.Max(degrees),
		Mean: 2 * float64(len(g.edges)) / float64(g.nodeCount)}
}
