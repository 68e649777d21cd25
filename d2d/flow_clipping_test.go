package d2d

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestClipIsTheSameAtBothEnds checks that both ends of an edge compute the same weight from the same two vectors. The
// flows at the two ends must be exact negatives of each other, with a norm of at most w·τ (edge weight times clip
// bound), whatever one end sends.
func TestClipIsTheSameAtBothEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, scale := range []float64{0, 1e-30, 1, 1e5, 1e30, math.MaxFloat32} {
		a, b := make([]float32, 1000), make([]float32, 1000)
		for k := range a {
			a[k], b[k] = float32(rng.NormFloat64()), float32(min(scale, scale*(0.5+rng.Float64()/2)))
		}
		for _, tau := range []float64{0, 1e-3, 0.5, 10, 1e6} {
			there, back := ClippedFlowWeight(float32(0.2), tau, ParameterDistance(a, b)),
				ClippedFlowWeight(float32(0.2), tau, ParameterDistance(b, a))
			if there != back {
				t.Fatalf("scale %v, tau %v: weights %v and %v", scale, tau, there, back)
			}
			if tau == 0 {
				continue
			}
			norm := 0.0
			for k := range a {
				f, g := there*(b[k]-a[k]), back*(a[k]-b[k])
				if there != 0 && f != -g {
					t.Fatalf("scale %v, tau %v: flows %v and %v", scale, tau, f, g)
				}
				norm += float64(f) * float64(f)
			}
			if norm = math.Sqrt(norm); there != 0 && !(norm <= 0.2*tau*1.0001) {
				t.Errorf("scale %v, tau %v: a flow of %v", scale, tau, norm)
			}
		}
	}
	if w := ClippedFlowWeight(float32(0.2), 1, 4e38); w != 0 {
		t.Errorf("a difference that float32 cannot hold flows with weight %v", w)
	}
}

// TestClippedLockStep checks that a simulated step of all nodes with clipping is bitwise equal to the results of the
// nodes' mixers.
func TestClippedLockStep(t *testing.T) {
	const n, steps, tau = 20, 20, 0.3
	w := newLinks[float32](t, 3, n, 7, ring(n), fate{delay: 30 * time.Millisecond, steps: steps, drain: time.Second,
		clip: tau})
	var edges [][2]int
	for e := range ring(n) {
		edges = append(edges, e)
	}
	slices.SortFunc(edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	links, weights := NewAdjacency(n, edges), slices.Repeat([]float64{0.2}, len(edges))
	x, y, clipped, some := make([][]float32, n), make([][]float32, n), make([]float64, len(edges)), 0
	for i := range n {
		x[i], y[i] = slices.Clone(w.nodes[i].x), make([]float32, 7)
	}
	for range steps {
		for i := range n {
			ClipNodeFlowWeights(clipped, i, x, links, weights, tau)
		}
		for _, v := range clipped {
			if v < float64(float32(0.2)) {
				some++
			}
		}
		MixAllNodes(y, x, x, links, clipped)
		x, y = y, x
	}
	w.rest()
	bounded := uint32(0)
	for i, a := range w.nodes {
		if !slices.Equal(a.x, x[i]) {
			t.Errorf("%s: %v, want %v", a.cfg.Self, a.x, x[i])
		}
		for _, s := range a.seen {
			bounded += s.ClippedFlows
		}
	}
	if some == 0 || int(bounded) != 2*some {
		t.Errorf("%d weights were bounded, the ends saw %d", some, bounded)
	}
}

// TestClippedMeanIsConserved checks that lost, duplicated and late messages do not change the mean of the parameters,
// for any clip bound.
func TestClippedMeanIsConserved(t *testing.T) {
	for _, tau := range []float64{1e-3, 0.1, 1, 100} {
		f := fate{loss: 0.2, dup: 0.05, delay: 120 * time.Millisecond, compute: 20 * time.Millisecond, gradient: 0.1,
			wait: 100 * time.Millisecond, steps: 60, drain: 5 * time.Second, open: true, clip: tau}
		w := newLinks[float32](t, 4, 20, 3, ring(20), f)
		w.rest()
		if drift := w.drift(); !(drift <= 1e-5) {
			t.Errorf("tau %v: the mean drifted by %v", tau, drift)
		}
	}
}

// TestSeen checks that the flow statistics distinguish two neighbours: one that moves towards this agent and one that
// always sends the same values.
func TestSeen(t *testing.T) {
	w := newLinks[float64](t, 5, 20, 40, ring(20),
		fate{steps: 10, drain: time.Second, open: true, clip: 1e6, still: true})
	w.rest()
	for _, a := range w.nodes[1:] {
		for _, s := range a.seen {
			if still := s.NeighborID == w.nodes[0].cfg.Self; still != (s.MixingResponseRatio < 0.05) ||
				s.AppliedFlows != 10 ||
				s.ClippedFlows != 0 ||
				!(s.MeanParameterDistance > 0) {
				t.Errorf("%s sees %+v", a.cfg.Self, s)
			}
		}
	}
}

// TestRestartIsWatchedOn checks that the flow statistics of a neighbour are kept when the neighbour restarts. Otherwise
// a malicious neighbour could clear them by restarting before each flow.
func TestRestartIsWatchedOn(t *testing.T) {
	m := newMixer(MixingConfig[float64]{Boot: 1, Neighbors: []Neighbor{{ID: "b", MixingWeight: 0.5, Boot: 1,
		ClipBound: 1}},
		SnapshotTimeout: time.Second, RepeatInterval: time.Hour, MaxSilentWaits: 1}, []float64{1})
	e := m.edgeToNeighbor("b")
	e.flowStats = edgeFlowStats{flowCount: 3, distanceSum: 6, squaredDifferenceSum: 2, neighborResponseSum: 0.5}
	m.handleGreeting(neighborGreeted{messageSender{"b", 2, 1}})
	all := m.takeEdgeMeasurements()
	if m.stats.EdgeResets != 1 || len(all) != 1 || all[0].AppliedFlows != 3 || all[0].MeanParameterDistance != 2 ||
		all[0].MixingResponseRatio != 0.25 {
		t.Errorf("%d resets, seen %+v", m.stats.EdgeResets, all)
	}
}
