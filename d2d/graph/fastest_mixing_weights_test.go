package graph

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/spec"
)

// TestFastestClosedForms compares the weights with known optima. If all edges of a graph are equivalent, the best
// constant weight is optimal.
func TestFastestClosedForms(t *testing.T) {
	join := func(n int, joined func(i, j int) bool) *Graph { return graphFromPredicate(n, joined) }
	for name, c := range map[string]struct {
		g    *Graph
		want float64
	}{
		"complete": {CompleteGraph(7), 0},
		"pair":     {RingGraph(2), 0},
		"star":     {join(8, func(i, _ int) bool { return i == 0 }), 7. / 9},
		// The optimum for a path is published in Boyd, Diaconis, Sun, Xiao (2006).
		"path":   {join(9, func(i, j int) bool { return j == i+1 }), math.Cos(math.Pi / 9)},
		"ring":   {RingGraph(8), (4 - (2 - math.Sqrt2)) / (4 + (2 - math.Sqrt2))},
		"cube":   {join(8, func(i, j int) bool { d := i ^ j; return d&(d-1) == 0 }), (6 - 2.) / (6 + 2.)},
		"K(3,4)": {join(7, func(i, j int) bool { return i < 3 && j >= 3 }), (7 - 3.) / (7 + 3.)},
	} {
		m, err := NewMixingMatrix(c.g, spec.EdgeWeightsFastest)
		if err != nil {
			t.Fatal(err)
		}
		if got := math.Sqrt(m.SecondEigenvalue(1)); math.Abs(got-c.want) > 2e-6 {
			t.Errorf("%s: |λ₂| is %v, want %v", name, got, c.want)
		}
	}
}

// TestFastestIsCertified verifies the dual solution independently. By weak duality, the value of the dual solution is a
// lower bound of |λ₂| for all weights.
func TestFastestIsCertified(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		n := 3 + rng.IntN(18)
		g, err := ConnectedRandomGraph(n, 0.2+0.6*rng.Float64(), rng)
		if err != nil {
			t.Fatal(err)
		}
		best, err := bestConstantWeights(g)
		if err != nil {
			t.Fatal(err)
		}
		weights, err := fastestMixingWeights(g)
		if err != nil {
			t.Fatal(err)
		}
		got, before := absSecondEigenvalue(g, weights), absSecondEigenvalue(g, best)
		if got > before {
			t.Fatalf("|λ₂| is %v, with the best constant %v", got, before)
		}
		if before < 1e-12 {
			continue
		}
		p := newFastestMixingSDP(g, best, 2*before)
		steps := 0
		for p.dualityGap() > fastestWeightsTolerance*p.eigenvalueBound() && p.interiorPointStep() {
			steps++
		}
		if steps > 15 {
			t.Errorf("%d nodes, %d edges: %d steps; about ten are needed", n, len(g.edges), steps)
		}
		if bound := dualValue(t, p); got > bound*(1+2e-6) || bound > got+1e-9 {
			t.Errorf("%d nodes, %d edges: |λ₂| is %v, the dual bound %v", n, len(g.edges), got, bound)
		}
		perturbed := slices.Clone(weights)
		for range 20 {
			for k := range perturbed {
				perturbed[k] = weights[k] + 1e-3*rng.NormFloat64()
			}
			if other := absSecondEigenvalue(g, perturbed); other < got*(1-2e-6) {
				t.Fatalf("|λ₂| is %v and with other weights %v", got, other)
			}
		}
	}
}

// dualValue checks that the dual variables X₁ and X₂ are feasible, and returns the lower bound of |λ₂| that they prove.
func dualValue(t *testing.T, p *fastestMixingSDP) float64 {
	t.Helper()
	x1, x2 := p.inequalities[0].x, p.inequalities[1].x
	for _, x := range []*mat.SymDense{x1, x2} {
		if lambda := symmetricEigenvalues(x); lambda[len(lambda)-1] < 0 {
			t.Errorf("X has the eigenvalue %v", lambda[len(lambda)-1])
		}
	}
	if trace := mat.Trace(x1) + mat.Trace(x2); math.Abs(trace-1) > 1e-9 {
		t.Errorf("tr X₁ + tr X₂ = %v", trace)
	}
	for _, e := range p.graph.edges {
		if d := edgeQuadraticForm(x1, e) - edgeQuadraticForm(x2, e); math.Abs(d) > 1e-9 {
			t.Errorf("edge %v: aᵀ(X₁−X₂)a = %v", e, d)
		}
	}
	value := func(x *mat.SymDense) float64 { return mat.Trace(x) - mat.Sum(x)/float64(p.graph.nodeCount) }
	return value(x1) - value(x2)
}

func TestFastestRefuses(t *testing.T) {
	_, err := NewMixingMatrix(graphFromPredicate(3, func(_, _ int) bool { return false }), spec.EdgeWeightsFastest)
	if err == nil || !strings.Contains(err.Error(),
		"fastest-mixing weights: the graph is not connected: it has 3 components") {
		t.Errorf("error %v", err)
	}
	_, err = NewMixingMatrix(CompleteGraph(64), spec.EdgeWeightsFastest)
	if err == nil || !strings.Contains(err.Error(),
		"the graph has 2016 edges, but at most 2000 edges are supported: use the weight rule best-constant instead") {
		t.Errorf("error %v", err)
	}
	one, err := NewMixingMatrix(RingGraph(1), spec.EdgeWeightsFastest)
	if err != nil || len(one.EdgeWeights) != 0 {
		t.Errorf("one node: %v, %v", one, err)
	}
}

// BenchmarkFastest runs the search on the densest graphs of Table 1 in the FedDec paper and on a realistic graph of 50
// devices.
func BenchmarkFastest(b *testing.B) {
	for name, draw := range map[string]func(*rand.Rand) (*Graph, error){
		"random40p0.7": func(rng *rand.Rand) (*Graph, error) { return ConnectedRandomGraph(40, 0.7, rng) },
		"random20p0.5": func(rng *rand.Rand) (*Graph, error) { return ConnectedRandomGraph(20, 0.5, rng) },
		"live50":       func(rng *rand.Rand) (*Graph, error) { return ConnectedGeographicGraph(50, 0.25, rng) },
	} {
		b.Run(name, func(b *testing.B) {
			g, err := draw(rand.New(rand.NewPCG(1, 1)))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(g.edges)), "edges")
			for range b.N {
				if _, err := fastestMixingWeights(g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
