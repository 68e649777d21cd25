package graph

import (
	"fmt"
	"math/rand/v2"
)

// GeographicGraph returns the graph that joins all pairs of points at a distance less than radius (feddec section 4:
// "smaller than"). A larger radius on the same points only adds edges. The graph keeps points.
func GeographicGraph(points []Point, radius float64) *Graph {
	g := graphFromPredicate(len(points), func(i, j int) bool { return isWithinRadius(points[i], points[j], radius) })
	g.nodePositions = points
	return g
}

func isWithinRadius(a, b Point, radius float64) bool {
	dx, dy := a.X-b.X, a.Y-b.Y
	return float64(dx*dx)+float64(dy*dy) < float64(radius*radius)
}

// ScatterPoints fills points uniformly over the unit square. It draws x, then y, for each point.
func ScatterPoints(points []Point, rng *rand.Rand) {
	for i := range points {
		points[i].X = rng.Float64()
		points[i].Y = rng.Float64()
	}
}

// RandomGraph returns a graph of n nodes in which each pair is joined with probability p. It draws once per pair, in
// lexicographic order.
func RandomGraph(n int, p float64, rng *rand.Rand) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return rng.Float64() < p })
}

// RingGraph returns a ring of n nodes. Two nodes have one edge.
func RingGraph(n int) *Graph {
	return graphFromPredicate(n, func(i, j int) bool { return j == i+1 || i == 0 && j == n-1 })
}

// CompleteGraph returns the graph of n nodes with all edges.
func CompleteGraph(n int) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return true })
}

// ConnectedGeographicGraph scatters n points over the unit square until their [GeographicGraph] is connected. The
// result is a sample conditioned on connectedness. It returns an error after maxGraphDraws(n) attempts.
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

// ConnectedRandomGraph draws [RandomGraph] graphs until one is connected. It returns an error after maxGraphDraws(n)
// attempts.
func ConnectedRandomGraph(n int, p float64, rng *rand.Rand) (*Graph, error) {
	for range maxGraphDraws(n) {
		if g := RandomGraph(n, p, rng); g.IsConnected() {
			return g, nil
		}
	}
	return nil, fmt.Errorf("probability: none of %d random graphs of %d nodes with link probability %v was connected: "+
		"use a larger probability", maxGraphDraws(n), n, p)
}

// maxGraphDraws returns the maximum number of attempts to draw a connected graph. It limits the search to about a
// second, because an attempt examines n²/2 pairs. For n = 10 it finds graphs with a probability of only 10⁻⁵.
func maxGraphDraws(n int) int { return min(max(200_000_000/max(n*n, 1), 1000), 1_000_000) }
