package d2d_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/wire"
)

// randomEdges returns the edges of a random graph of n nodes in lexicographic order. Each edge exists with probability
// p.
func randomEdges(n int, p float64, rng *rand.Rand) (edges [][2]int) {
	for i := range n {
		for j := i + 1; j < n; j++ {
			if rng.Float64() < p {
				edges = append(edges, [2]int{i, j})
			}
		}
	}
	return edges
}

// randomRows returns vectors with values of very different magnitudes, so that differences in rounding become visible.
func randomRows[T wire.Float](n, d int, rng *rand.Rand) [][]T {
	rows := zeroRows[T](n, d)
	for _, row := range rows {
		for k := range row {
			row[k] = T(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(7)-3)))
		}
	}
	return rows
}

func zeroRows[T wire.Float](n, d int) [][]T {
	rows := make([][]T, n)
	for i := range rows {
		rows[i] = make([]T, d)
	}
	return rows
}

// naive computes a mixing step directly from the definition x_i ← Σ_j W_ij x_j, with a dense weight matrix.
func naive[T wire.Float](dst, x, sent [][]T, w [][]T) {
	for i := range x {
		for k := range x[i] {
			dst[i][k] = x[i][k]
			for j := range x {
				if w[i][j] != 0 {
					dst[i][k] += T(w[i][j] * T(sent[j][k]-sent[i][k]))
				}
			}
		}
	}
}

func dense[T wire.Float](n int, edges [][2]int, weights []float64) [][]T {
	w := zeroRows[T](n, n)
	for e, ij := range edges {
		w[ij[0]][ij[1]], w[ij[1]][ij[0]] = T(weights[e]), T(weights[e])
	}
	return w
}

// randomWeights returns random edge weights, including negative weights and 0, the weight of a failed link.
func randomWeights(m int, rng *rand.Rand) []float64 {
	weights := make([]float64, m)
	for e := range weights {
		if rng.Float64() < 0.7 {
			weights[e] = rng.Float64() - 0.2
		}
	}
	return weights
}

func TestMixTwin(t *testing.T) {
	t.Run("float32", testMixTwin[float32])
	t.Run("float64", testMixTwin[float64])
}

func testMixTwin[T wire.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n, d := 1+rng.IntN(12), rng.IntN(9)
		edges := randomEdges(n, rng.Float64(), rng)
		weights := randomWeights(len(edges), rng)
		x, sent := randomRows[T](n, d, rng), randomRows[T](n, d, rng)
		got, want := randomRows[T](n, d, rng), zeroRows[T](n, d)
		d2d.MixAllNodes(got, x, sent, d2d.NewAdjacency(n, edges), weights)
		naive(want, x, sent, dense[T](n, edges, weights))
		sameBits(t, "the definition", got, want)

		// Compute each end of each edge separately, with the nodes in a random order.
		for i := range x {
			copy(want[i], x[i])
		}
		for _, i := range rng.Perm(n) {
			for e, ij := range edges { // Both the edges and the neighbours of each node are in ascending order.
				if weights[e] != 0 && (ij[0] == i || ij[1] == i) {
					d2d.AddParameterFlow(want[i], T(weights[e]), sent[i], sent[ij[0]+ij[1]-i])
				}
			}
		}
		sameBits(t, "flows edge by edge", got, want)
	}
}

func sameBits[T wire.Float](t *testing.T, than string, got, want [][]T) {
	t.Helper()
	for i := range got {
		for k := range got[i] {
			if math.Float64bits(float64(got[i][k])) != math.Float64bits(float64(want[i][k])) {
				t.Fatalf("x[%d][%d] = %v, %s gives %v", i, k, got[i][k], than, want[i][k])
			}
		}
	}
}

// TestFlowIsAntisymmetric checks that the flow at one end of an edge is the exact negative of the flow at the other
// end.
func TestFlowIsAntisymmetric(t *testing.T) {
	t.Run("float32", testFlowIsAntisymmetric[float32])
	t.Run("float64", testFlowIsAntisymmetric[float64])
}

func testFlowIsAntisymmetric[T wire.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := randomRows[T](2, 100_000, rng)
	x[0][0], x[1][0] = 5, 5
	x[0][1], x[1][1] = math.SmallestNonzeroFloat32, 0
	for _, weight := range []T{1. / 3, -0.7, 1e-6} {
		flows := zeroRows[T](2, len(x[0]))
		d2d.AddParameterFlow(flows[0], weight, x[0], x[1])
		d2d.AddParameterFlow(flows[1], weight, x[1], x[0])
		for k := range flows[0] {
			if flows[0][k] != -flows[1][k] {
				t.Fatalf("weight %v: %v ← %v flows %v one way and %v the other", weight, x[0][k], x[1][k], flows[0][k],
					flows[1][k])
			}
		}
	}
}

// TestMixConservesTheSum checks that a mixing step conserves the sum over all nodes, up to rounding, for any set of
// active links.
func TestMixConservesTheSum(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testMixConservesTheSum[float32](t, 1e-5) })
	t.Run("float64", func(t *testing.T) { testMixConservesTheSum[float64](t, 1e-13) })
}

func testMixConservesTheSum[T wire.Float](t *testing.T, tolerance float64) {
	const n, d = 20, 30
	rng := rand.New(rand.NewPCG(5, 6))
	edges := randomEdges(n, 0.3, rng)
	links := d2d.NewAdjacency(n, edges)
	x, next := zeroRows[T](n, d), zeroRows[T](n, d)
	for i := range x {
		for k := range x[i] {
			x[i][k] = T(1 + rng.Float64())
		}
	}
	before := sums(x)
	for range 500 {
		weights := make([]float64, len(edges))
		for e := range weights {
			if rng.Float64() < 0.8 {
				weights[e] = 1. / 20
			}
		}
		d2d.MixAllNodes(next, x, x, links, weights)
		x, next = next, x
	}
	for k, after := range sums(x) {
		if math.Abs(after-before[k]) > tolerance*before[k] {
			t.Errorf("column %d: the sum went from %v to %v", k, before[k], after)
		}
		if spread := math.Abs(float64(x[0][k] - x[n-1][k])); spread > 1e-4 {
			t.Errorf("column %d: a spread of %v is left after 500 steps", k, spread)
		}
	}
}

func sums[T wire.Float](x [][]T) []float64 {
	total := make([]float64, len(x[0]))
	for _, row := range x {
		for k, v := range row {
			total[k] += float64(v)
		}
	}
	return total
}

func TestPanics(t *testing.T) {
	links := d2d.NewAdjacency(2, [][2]int{{0, 1}})
	two := zeroRows[float32](2, 3)
	for name, misuse := range map[string]func(){
		"edge downwards":  func() { d2d.NewAdjacency(3, [][2]int{{2, 1}}) },
		"loop":            func() { d2d.NewAdjacency(3, [][2]int{{1, 1}}) },
		"edge twice":      func() { d2d.NewAdjacency(3, [][2]int{{0, 1}, {0, 1}}) },
		"edges unordered": func() { d2d.NewAdjacency(3, [][2]int{{1, 2}, {0, 1}}) },
		"unknown node":    func() { d2d.NewAdjacency(3, [][2]int{{0, 3}}) },
		"too few rows":    func() { d2d.MixAllNodes(two[:1], two, two, links, []float64{1}) },
		"no weights":      func() { d2d.MixAllNodes(zeroRows[float32](2, 3), two, two, links, nil) },
		"rows that differ": func() {
			uneven := [][]float32{{0}, {0, 0}}
			d2d.MixAllNodes([][]float32{{0}, {0, 0}}, uneven, uneven, links, []float64{1})
		},
		"flow of two lengths": func() { d2d.AddParameterFlow(two[0], 1, two[0], two[1][:2]) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}

// BenchmarkMix compares MixAllNodes with a naive loop over flat rows, and with single flows. The metric x_naive is the
// speed-up of MixAllNodes over the naive loop. One operation is a mixing step of all nodes.
func BenchmarkMix(b *testing.B) {
	for _, d := range []int{25, 1000} {
		b.Run(fmt.Sprintf("float32/d%d", d), func(b *testing.B) { benchmarkMix[float32](b, d) })
		b.Run(fmt.Sprintf("float64/d%d", d), func(b *testing.B) { benchmarkMix[float64](b, d) })
	}
}

func benchmarkMix[T wire.Float](b *testing.B, d int) {
	const n = 20
	rng := rand.New(rand.NewPCG(7, 8))
	edges := randomEdges(n, 0.3, rng)
	weights := make([]float64, len(edges))
	for e := range weights {
		weights[e] = 1. / n
	}
	links, x, next := d2d.NewAdjacency(n, edges), randomRows[T](n, d, rng), zeroRows[T](n, d)
	bare := func() {
		for i := range x {
			copy(next[i], x[i])
		}
		for e, ij := range edges {
			w, a, z, da, dz := T(weights[e]), x[ij[0]], x[ij[1]], next[ij[0]], next[ij[1]]
			for k := range a {
				f := T(w * (z[k] - a[k]))
				da[k] += f
				dz[k] -= f
			}
		}
	}
	const slice = 50 // Alternate between the two after every 50 steps, so that both run under the same conditions.
	var own, twin time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += slice {
		began := time.Now()
		for range min(slice, b.N-done) {
			d2d.MixAllNodes(next, x, x, links, weights)
			x, next = next, x
		}
		own += time.Since(began)
		b.StopTimer()
		began = time.Now()
		for range min(slice, b.N-done) {
			bare()
			x, next = next, x
		}
		twin += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(twin)/float64(own), "x_naive")
	b.ReportMetric(float64(2*len(edges)*d*b.N)/own.Seconds()/1e9, "Gflows/s")
}
