package graph

import (
	"fmt"
	"math/rand/v2"
)

// GeographicGraph joins the points that are nearer to each other than radius (feddec section 4: "smaller than"). Graphs
// of the same points share them, so those of a larger radius have all the edges of those of a smaller one.
func GeographicGraph(points []Point, radius float64) *Graph {
	g := graphFromPredicate(len(points), func(i, j int) bool { return isWithinRadius(points[i], points[j], radius) })
	g.nodePositions = points
	return g
}

func isWithinRadius(a, b Point, radius float64) bool {
	dx, dy := a.X-b.X, a.Y-b.Y
	return float64(dx*dx)+float64(dy*dy) < float64(radius*radius)
}

// ScatterPoints fills points uniformly over the unit square; it draws x, then y, point by point.
func ScatterPoints(points []Point, rng *rand.Rand) {
	for i := range points {
		points[i].X = rng.Float64()
		points[i].Y = rng.Float64()
	}
}

// RandomGraph joins each pair of n nodes with probability p; it draws once a pair, in lexicographic order.
func RandomGraph(n int, p float64, rng *rand.Rand) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return rng.Float64() < p })
}

// RingGraph joins each of n nodes with the next and the last with the first; two nodes have one edge.
func RingGraph(n int) *Graph {
	return graphFromPredicate(n, func(i, j int) bool { return j == i+1 || i == 0 && j == n-1 })
}

// CompleteGraph joins all n nodes with each other.
func CompleteGraph(n int) *Graph {
	return graphFromPredicate(n, func(_, _ int) bool { return true })
}

// ConnectedGeographicGraph scatters n points over the unit square until [GeographicGraph] of them is connected: a
// realisation conditioned on connectedness. It gives up, with an error, after a number of draws that is bounded by n.
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
		"connected: "+
		"use a larger radius or other nodes", maxGraphDraws(n), n, radius)
}

// ConnectedRandomGraph draws [RandomGraph] graphs until one is connected, as [ConnectedGeographicGraph] does.
func ConnectedRandomGraph(n int, p float64, rng *rand.Rand) (*Graph, error) {
	for range maxGraphDraws(n) {
		if g := RandomGraph(n, p, rng); g.IsConnected() {
			return g, nil
		}
	}
	return nil, fmt.Errorf("probability: none of %d random graphs of %d nodes with link probability %v was connected: "+
		"use a larger probability", maxGraphDraws(n), n, p)
}

// maxGraphDraws bounds the search for a connected graph to about a second: a draw looks at n²/2 pairs. Graphs as rare
// as one in a hundred thousand are found for n = 10.
func maxGraphDraws(n int) int { return min(max(200_000_000/max(n*n, 1), 1000), 1_000_000) }
