package graph

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestEndsTwin compares the extreme eigenvalues from Lanczos steps with the results of the dense solver, also for small
// Krylov spaces.
func TestEndsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	graphs := []*Graph{RingGraph(2), RingGraph(3), RingGraph(40), CompleteGraph(9), graphFromPredicate(12, func(i,
		_ int) bool {
		return i == 0
	}),
		graphFromPredicate(5, func(_, _ int) bool { return false })}
	for range 30 {
		graphs = append(graphs, RandomGraph(2+rng.IntN(120), 0.05+0.5*rng.Float64(), rng))
	}
	for _, g := range graphs {
		weights := make([]float64, len(g.edges))
		for k := range weights {
			weights[k] = rng.Float64() - 0.2
		}
		all := symmetricEigenvalues(centeredMatrix((&MixingMatrix{Graph: g,
			// eigenvalues of W − 𝟙𝟙ᵀ/n, where the all-ones vector 𝟙 has the eigenvalue 0
			EdgeWeights: weights}).DenseMatrix()))
		low, high := extremeEigenvalues(g.nodeCount, laplacianProduct(g, weights))
		want := math.Max(math.Abs(all[0]), math.Abs(all[len(all)-1]))
		if got := math.Max(math.Abs(1-low), math.Abs(1-high)); math.Abs(got-want) > 1e-9*max(1, want) {
			t.Errorf("%d nodes, %d edges: |λ₂| is %v, want %v", g.nodeCount, len(g.edges), got, want)
		}
		if lambda := LaplacianSpectrum(g); g.IsConnected() {
			low, high := extremeEigenvalues(g.nodeCount, laplacianProduct(g, constantWeights(g, 1)))
			if math.Abs(low-lambda[g.nodeCount-2]) > 1e-9*lambda[0] || math.Abs(high-lambda[0]) > 1e-9*lambda[0] {
				t.Errorf("%d nodes, %d edges: Laplacian %v to %v, want %v to %v", g.nodeCount, len(g.edges), low, high,
					lambda[g.nodeCount-2], lambda[0])
			}
		}
	}
}

// TestLargeGraphs compares the eigenvalues of graphs that are too large for the dense solver with known formulas.
func TestLargeGraphs(t *testing.T) {
	cube := func(dimensions int) *Graph {
		g := &Graph{nodeCount: 1 << dimensions}
		for i := range g.nodeCount {
			for d := range dimensions {
				if j := i | 1<<d; j != i {
					g.edges = append(g.edges, Edge{i, j})
				}
			}
		}
		return g
	}
	star := &Graph{nodeCount: 5_000}
	for j := 1; j < star.nodeCount; j++ {
		star.edges = append(star.edges, Edge{0, j})
	}
	ring := RingGraph(1500)
	slowest := 1 - (2-2*math.Cos(2*math.Pi/1500))/3
	for name, c := range map[string]struct {
		g    *Graph
		rule spec.EdgeWeightRule
		want float64
		less float64 // maximum amount by which the result may be too small
	}{
		"cube, metropolis":    {cube(12), spec.EdgeWeightsMetropolis, 1 - 2./13, 0},
		"cube, best constant": {cube(11), spec.EdgeWeightsBestConstant, (11 - 1.) / (11 + 1), 0},
		"star, metropolis":    {star, spec.EdgeWeightsMetropolis, 1 - 1./5_000, 0},
		"star, best constant": {star, spec.EdgeWeightsBestConstant, (5_000 - 1.) / (5_000 + 1), 0},
		"ring, metropolis":    {ring, spec.EdgeWeightsMetropolis, slowest, 1e-3},
	} {
		m, err := NewMixingMatrix(c.g, c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := math.Sqrt(m.SecondEigenvalue(1)); got > c.want+1e-9 || got < c.want-c.less-1e-9 {
			t.Errorf("%s: |λ₂| is %v, want %v", name, got, c.want)
		}
	}
}
