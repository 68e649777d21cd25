package graph

import (
	"fmt"
	"math/rand/v2"
)

// GeographicGraph returns the graph that joins each pair of points whose distance is less than radius (FedDec paper,
// section 4: "smaller than"). A larger radius on the same points only adds edges. The graph keeps a reference to
// points.
func GeographicGraph(points []Point, radius float64) *Graph {
	g := graphFromPredicate(len(points), func(i, j int) bool { return isWithinRadius(points[i], points[j], radius) })
	g.nodePositions = points
	return g
}

func isWithinRadius(a, b Point, radius float64) bool {
	dx, dy := a.X-b.X, a.Y-b.Y
	return float64(dx*dx)+float64(dy*dy) < float64(radius*radius)
}

// ScatterPoints fills points with random positions, uniformly distributed over the unit square. For each point it draws
// first x and then y.
func ScatterPoints(points []Point, rng *rand.Rand) {
	for i := range points {
		points[i].X = rng.Float64()
		points[i].Y = rng.Float64()
	}
}

// RandomGraph returns a random graph of n nodes in which each pair of nodes is joined with probability p. It draws one
// random number per pair, in lexicographic order.
func RandomGraph(n int, p float64, rng *rand.Rand) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return rng.Float64() < p })
}

// RingGraph returns the graph in which n nodes form a ring. For n = 2 the graph has one edge.
func RingGraph(n int) *Graph {
	return graphFromPredicate(n, func(i, j int) bool { return j == i+1 || i == 0 && j == n-1 })
}

// CompleteGraph returns the graph of n nodes with all edges.
func CompleteGraph(n int) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return true })
}

// ConnectedGeographicGraph scatters n points over the unit square until the [GeographicGraph] of the points is
// connected. The result is therefore a random graph conditioned on connectedness. It returns an error after
// maxGraphDraws(n) attempts.
func ConnectedGeographicGraph(n int, radius float64, rng *rand.Rand) (*Graph, error) {
	points, f := make([]Point, n), newUnionFind(n)
	for range maxGraphDraws(n) {
		ScatterPoints(points, rng)
		f.reset()
		for i := 1; i < n && f.componentCount > 1; i++ {
			for j := range i {
				if isWithinRadius(points[i], points[j], radius) {
					f.uniteNodes(i, j)
				}
			}
		}
		if f.componentCount == 1 {
			return GeographicGraph(points, radius), nil
		}
	}
	return nil, fmt.Errorf("radius: none of %d geographic graphs of %d nodes with radius %v in the unit square was "+
		"connected: use a larger radius or other node positions", maxGraphDraws(n), n, radius)
}

// ConnectedRandomGraph draws graphs by [RandomGraph] until a graph is connected. It returns an error after
// maxGraphDraws(n) attempts.
func ConnectedRandomGraph(n int, p float64, rng *rand.Rand) (*Graph, error) {
	for range maxGraphDraws(n) {
		if g := RandomGraph(n, p, rng); g.IsConnected() {
			return g, nil
		}
	}
	return nil, fmt.Errorf("probability: none of %d random graphs of %d nodes with link probability %v was connected: "+
		"use a larger probability", maxGraphDraws(n), n, p)
}

// maxGraphDraws returns the maximum number of attempts to draw a connected graph of n nodes. It limits the search to
// about a second, because an attempt examines n²/2 pairs. For n = 10, the attempts suffice even if only one graph in
// 10⁵ is connected.
func maxGraphDraws(n int) int { return min(max(200_000_000/max(n*n, 1), 1000), 1_000_000) }
