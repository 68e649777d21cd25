package graph_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/spec"
)

func mustMix(t testing.TB, g *graph.Graph, rule spec.EdgeWeightRule) *graph.MixingMatrix {
	t.Helper()
	m, err := graph.NewMixingMatrix(g, rule)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-10*max(1, math.Abs(want))) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestLaplacianSpectra compares the Laplacian spectra of some graphs with known formulas.
func TestLaplacianSpectra(t *testing.T) {
	const n = 9
	for name, c := range map[string]struct {
		g        *graph.Graph
		largest  float64
		smallest float64 // smallest nonzero eigenvalue of the Laplacian
	}{
		"path":     {path(t, n), 2 - 2*math.Cos(math.Pi*(n-1)/n), 2 - 2*math.Cos(math.Pi/n)},
		"ring":     {graph.RingGraph(n), 2 - 2*math.Cos(2*math.Pi*4/n), 2 - 2*math.Cos(2*math.Pi/n)},
		"star":     {star(t, n), n, 1},
		"complete": {graph.CompleteGraph(n), n, n},
	} {
		lambda := graph.LaplacianSpectrum(c.g)
		near(t, name+": λ₁", lambda[0], c.largest)
		near(t, name+": λ_{n−1}", lambda[n-2], c.smallest)
		near(t, name+": λ_n", lambda[n-1], 0)
	}
}

// TestSecondEigenvalues compares |λ₂| of mixing matrices with known formulas: for a constant weight w, it is 1 − w·λ
// for an eigenvalue λ of the Laplacian.
func TestSecondEigenvalues(t *testing.T) {
	const n = 9
	ring := func(k int) float64 { return 2 - 2*math.Cos(2*math.Pi*float64(k)/n) }
	for name, c := range map[string]struct {
		g    *graph.Graph
		rule spec.EdgeWeightRule
		want float64
	}{
		"complete, metropolis":    {graph.CompleteGraph(n), spec.EdgeWeightsMetropolis, 0},
		"complete, best constant": {graph.CompleteGraph(n), spec.EdgeWeightsBestConstant, 0},
		"complete, max degree":    {graph.CompleteGraph(n), spec.EdgeWeightsMaxDegree, 1. / (n - 1)},
		"star, metropolis":        {star(t, n), spec.EdgeWeightsMetropolis, 1 - 1./n},
		"star, best constant":     {star(t, n), spec.EdgeWeightsBestConstant, (n - 1.) / (n + 1)},
		"star, max degree":        {star(t, n), spec.EdgeWeightsMaxDegree, 1 - 1./(n-1)},
		"ring, metropolis":        {graph.RingGraph(n), spec.EdgeWeightsMetropolis, 1 - ring(1)/3},
		"ring, best constant": {graph.RingGraph(n), spec.EdgeWeightsBestConstant,
			(ring(4) - ring(1)) / (ring(4) + ring(1))},
		// The ring is bipartite, so an initial vector with alternating signs changes its sign in every step and never
		// decays.
		"even ring, max degree": {graph.RingGraph(8), spec.EdgeWeightsMaxDegree, 1},
		"pair, max degree":      {graph.RingGraph(2), spec.EdgeWeightsMaxDegree, 1},
		"pair, metropolis":      {graph.RingGraph(2), spec.EdgeWeightsMetropolis, 0},
		"one node":              {mustNew(t, 1), spec.EdgeWeightsBestConstant, 0},
		"two parts":             {mustNew(t, 2), spec.EdgeWeightsMetropolis, 1},
	} {
		m := mustMix(t, c.g, c.rule)
		near(t, name+": |λ̂₂|", m.SecondEigenvalue(1), c.want*c.want)
		near(t, name+": first eigenvalue", m.Spectrum()[0], 1)
	}
	if got := graph.MixingAlphaOfEigenvalue(0.75); got != 3 {
		t.Errorf("α of 0.75 is %v", got)
	}
	if !math.IsInf(graph.MixingAlphaOfEigenvalue(1), 1) {
		t.Errorf("α without mixing is %v", graph.MixingAlphaOfEigenvalue(1))
	}
}

// TestBestConstantIsBest checks that no other constant weight on a grid gives a smaller second eigenvalue than the best
// constant weight.
func TestBestConstantIsBest(t *testing.T) {
	rng := newRNG(1)
	for range 20 {
		g, err := graph.ConnectedRandomGraph(2+rng.IntN(12), 0.4, rng)
		if err != nil {
			t.Fatal(err)
		}
		best := mustMix(t, g, spec.EdgeWeightsBestConstant)
		for a := 0.01; a < 1; a += 0.01 {
			other, err := graph.NewMixingMatrixFromWeights(g, filled(len(g.Edges()), a))
			if err != nil {
				t.Fatal(err)
			}
			if other.SecondEigenvalue(1) < best.SecondEigenvalue(1)-1e-12 {
				t.Fatalf("weight %v beats %v", a, best.EdgeWeights[0])
			}
		}
	}
}

func filled(n int, v float64) []float64 {
	s := make([]float64, n)
	for k := range s {
		s[k] = v
	}
	return s
}

// everyW calls visit with the mixing matrix of each of the 2^m sets of active links, for m links, and with the set's
// probability.
func everyW(m *graph.MixingMatrix, p float64, visit func(w *mat.SymDense, probability float64)) {
	links := len(m.EdgeWeights)
	up, weights, degrees := make([]bool, links), make([]float64, links), make([]int, m.Graph.NodeCount())
	for set := range 1 << links {
		probability := 1.0
		for k := range up {
			if up[k] = set>>k&1 == 1; up[k] {
				probability *= p
			} else {
				probability *= 1 - p
			}
		}
		m.ComputeActiveWeights(weights, up, degrees)
		visit((&graph.MixingMatrix{Graph: m.Graph, EdgeWeights: weights}).DenseMatrix(), probability)
	}
}

// TestExpectedSquares compares the expectation E[WWᵀ] with the sum over all sets of active links.
func TestExpectedSquares(t *testing.T) {
	rng := newRNG(2)
	graphs := map[string]*graph.Graph{"complete": graph.CompleteGraph(5), "star": star(t, 7),
		"ring":      graph.RingGraph(6),
		"pair":      graph.RingGraph(2),
		"two parts": mustNew(t, 4, graph.Edge{I: 0, J: 1}, graph.Edge{I: 2, J: 3})}
	for len(graphs) < 12 {
		if g := graph.RandomGraph(6, 0.5, rng); g.IsConnected() && len(g.Edges()) <= 11 {
			graphs[string(rune('A'+len(graphs)))] = g
		}
	}
	// Sort the names, because all graphs use the same random generator.
	for _, name := range slices.Sorted(maps.Keys(graphs)) {
		g := graphs[name]
		given, err := graph.NewMixingMatrixFromWeights(g, make([]float64, len(g.Edges())))
		if err != nil {
			t.Fatal(err)
		}
		for k := range given.EdgeWeights {
			given.EdgeWeights[k] = rng.Float64() - 0.2
		}
		for _, m := range []*graph.MixingMatrix{mustMix(t, g, spec.EdgeWeightsMetropolis), given} {
			for _, p := range []float64{0.05, 0.5, 0.8, 1} {
				n := g.NodeCount()
				sum := mat.NewSymDense(n, nil)
				everyW(m, p, func(w *mat.SymDense, probability float64) {
					square := mat.NewSymDense(n, nil)
					square.SymOuterK(probability, w)
					sum.AddSym(sum, square)
				})
				var eigen mat.EigenSym
				eigen.Factorize(sum, false)
				lambda := eigen.Values(nil)
				// E[WWᵀ] is positive semidefinite, and the all-ones vector 𝟙 has the eigenvalue 1. With given weights,
				// another eigenvalue may exceed 1.
				want, gone := 0.0, false
				for _, l := range lambda {
					if !gone && math.Abs(l-1) < 1e-9 {
						gone = true
						continue
					}
					want = max(want, l)
				}
				near(t, name+": |λ̂₂|", m.SecondEigenvalue(p), want)
			}
		}
	}
}

// TestActiveWeights checks the mixing matrix W^t for every set of active links. W^t is symmetric by construction. It
// must have the weight 0 on failed links, and with Metropolis weights the own weights of the nodes must not be
// negative.
func TestActiveWeights(t *testing.T) {
	g := mustNew(t, 5, graph.Edge{I: 0, J: 1}, graph.Edge{I: 0, J: 2}, graph.Edge{I: 0, J: 3}, graph.Edge{I: 1, J: 2},
		graph.Edge{I: 3, J: 4})
	m := mustMix(t, g, spec.EdgeWeightsMetropolis)
	up, weights, degrees := []bool{true, false, true, false, true}, filled(5, 9), filled5()
	m.ComputeActiveWeights(weights, up, degrees)
	// The degrees in the graph of active links are 2, 1, 0, 2, 1.
	for k, want := range []float64{1. / 3, 0, 1. / 3, 0, 1. / 3} {
		near(t, "metropolis weight", weights[k], want)
	}
	best := mustMix(t, g, spec.EdgeWeightsBestConstant)
	best.ComputeActiveWeights(weights, up, degrees)
	for k := range weights {
		want := 0.0
		if up[k] {
			want = best.EdgeWeights[k]
		}
		near(t, "best-constant weight", weights[k], want)
	}
	everyW(m, 0.5, func(w *mat.SymDense, _ float64) {
		for i := range 5 {
			row := 0.0
			for j := range 5 {
				row += w.At(i, j)
				if w.At(i, j) < 0 {
					t.Fatalf("W[%d][%d] = %v", i, j, w.At(i, j))
				}
			}
			near(t, "row sum", row, 1)
		}
	})
}

func filled5() []int { return []int{7, 7, 7, 7, 7} }

func TestGivenWeightsAreChecked(t *testing.T) {
	_, err := graph.NewMixingMatrixFromWeights(graph.RingGraph(3), []float64{1, 2})
	wantError(t, err, "got 2 weights for 3 edges: one weight per edge is required")
	_, err = graph.NewMixingMatrixFromWeights(graph.RingGraph(3), []float64{1, 2, math.NaN()})
	wantError(t, err, "edge 1–2: weight NaN is not finite")
}

func TestScaleForLive(t *testing.T) {
	rng := newRNG(3)
	for range 100 {
		g := graph.RandomGraph(8, 0.5, rng)
		weights := make([]float64, len(g.Edges()))
		for k := range weights {
			weights[k] = 1.2*rng.Float64() - 0.3
		}
		scaled, sums, before := make([]float64, len(weights)), make([]float64, 8), make([]float64, 8)
		graph.CapNodeWeightSums(scaled, g, weights)
		for k, e := range g.Edges() {
			for _, i := range []int{e.I, e.J} {
				sums[i] += math.Abs(scaled[k])
				before[i] += math.Abs(weights[k])
			}
		}
		for k, e := range g.Edges() {
			if sums[e.I] > 1+1e-12 || sums[e.J] > 1+1e-12 {
				t.Fatalf("row sums %v", sums)
			}
			if before[e.I] <= 1 && before[e.J] <= 1 && scaled[k] != weights[k] {
				t.Fatalf("weight %v between small row sums became %v", weights[k], scaled[k])
			}
		}
	}
	g := star(t, 6)
	for _, rule := range []spec.EdgeWeightRule{spec.EdgeWeightsMetropolis, spec.EdgeWeightsMaxDegree} {
		m := mustMix(t, g, rule)
		scaled := make([]float64, len(m.EdgeWeights))
		graph.CapNodeWeightSums(scaled, g, m.EdgeWeights)
		for k := range scaled {
			near(t, string(rule)+" weight", scaled[k], m.EdgeWeights[k])
		}
	}
}

func TestUnknownRule(t *testing.T) {
	_, err := graph.NewMixingMatrix(graph.RingGraph(3), "best")
	wantError(t, err, `unknown weight rule "best"`)
}

// BenchmarkSpectrum computes the second eigenvalue |λ̂₂| of a graph of 300 nodes, both with all links up, and with
// failing links under Metropolis weights.
func BenchmarkSpectrum(b *testing.B) {
	g, err := graph.ConnectedGeographicGraph(300, 0.15, newRNG(4))
	if err != nil {
		b.Fatal(err)
	}
	m := mustMix(b, g, spec.EdgeWeightsMetropolis)
	b.Run("fixed", func(b *testing.B) {
		for range b.N {
			m.SecondEigenvalue(1)
		}
	})
	b.Run("failing", func(b *testing.B) {
		for range b.N {
			m.SecondEigenvalue(0.5)
		}
	})
}
