package graph_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/spec"
)

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func mustNew(t testing.TB, n int, edges ...graph.Edge) *graph.Graph {
	t.Helper()
	g, err := graph.New(n, edges)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func star(t testing.TB, n int) *graph.Graph {
	edges := make([]graph.Edge, n-1)
	for k := range edges {
		edges[k] = graph.Edge{I: 0, J: k + 1}
	}
	return mustNew(t, n, edges...)
}

func path(t testing.TB, n int) *graph.Graph {
	edges := make([]graph.Edge, n-1)
	for k := range edges {
		edges[k] = graph.Edge{I: k, J: k + 1}
	}
	return mustNew(t, n, edges...)
}

func TestNewSortsEdges(t *testing.T) {
	g := mustNew(t, 4, graph.Edge{I: 3, J: 2}, graph.Edge{I: 1, J: 0}, graph.Edge{I: 0, J: 3})
	if want := []graph.Edge{{I: 0, J: 1}, {I: 0, J: 3}, {I: 2, J: 3}}; !slices.Equal(g.Edges(), want) {
		t.Errorf("edges %v, want %v", g.Edges(), want)
	}
	if got := g.DegreeStats(); got != (graph.DegreeStats{Min: 1, Max: 2, Mean: 1.5}) {
		t.Errorf("degrees %+v", got)
	}
	if g.Adjacency().NodeCount() != 4 {
		t.Error("the links have another number of nodes")
	}
}

func TestNewRefuses(t *testing.T) {
	for want, edges := range map[string][]graph.Edge{
		"edge 0–3 refers to an unknown node: nodes are numbered from 0 to 2":  {{I: 0, J: 3}},
		"edge -1–1 refers to an unknown node: nodes are numbered from 0 to 2": {{I: -1, J: 1}},
		"edge 2–2 connects a node to itself":                                  {{I: 2, J: 2}},
		"duplicate edge 0–1": {{I: 0, J: 1}, {I: 1, J: 2},
			{I: 1, J: 0}},
	} {
		if _, err := graph.New(3, edges); err == nil || err.Error() != want {
			t.Errorf("%v: error %v, want %s", edges, err, want)
		}
	}
}

func TestShapes(t *testing.T) {
	for name, c := range map[string]struct {
		g     *graph.Graph
		edges int
	}{
		"ring of 5": {graph.RingGraph(5), 5}, "ring of 2": {graph.RingGraph(2), 1}, "ring of 1": {graph.RingGraph(1),
			0},
		"complete of 6": {graph.CompleteGraph(6), 15}, "no links": {graph.RandomGraph(4, 0, newRNG(1)), 0},
		"all links": {graph.RandomGraph(4, 1, newRNG(1)), 6},
	} {
		if got := len(c.g.Edges()); got != c.edges {
			t.Errorf("%s has %d edges, want %d", name, got, c.edges)
		}
	}
	for _, d := range graph.RingGraph(7).Degrees() {
		if d != 2 {
			t.Errorf("a node of a ring has %d neighbours", d)
		}
	}
}

// TestGeographic checks the edges of a geographic graph against their definition. It also checks that a graph with a
// larger radius contains all edges of a graph with a smaller radius.
func TestGeographic(t *testing.T) {
	points := make([]graph.Point, 30)
	graph.ScatterPoints(points, newRNG(2))
	sparse, dense := graph.GeographicGraph(points, 0.35), graph.GeographicGraph(points, 0.5)
	for i, a := range points {
		if a.X < 0 || a.X >= 1 || a.Y < 0 || a.Y >= 1 {
			t.Fatalf("%v is outside the unit square", a)
		}
		for j := i + 1; j < len(points); j++ {
			b := points[j]
			near := (a.X-b.X)*(a.X-b.X)+(a.Y-b.Y)*(a.Y-b.Y) < 0.35*0.35
			if near != slices.Contains(sparse.Edges(), graph.Edge{I: i, J: j}) {
				t.Fatalf("%v and %v: joined is %v", a, b, !near)
			}
		}
	}
	for _, e := range sparse.Edges() {
		if !slices.Contains(dense.Edges(), e) {
			t.Fatalf("edge %v is lost with a larger radius", e)
		}
	}
	line := []graph.Point{{X: 0, Y: 0}, {X: 0.5, Y: 0}}
	if graph.GeographicGraph(line, 0.5).IsConnected() {
		t.Error("points at the radius are joined: the document says smaller")
	}
}

func TestComponents(t *testing.T) {
	g := mustNew(t, 7, graph.Edge{I: 1, J: 4}, graph.Edge{I: 4, J: 6}, graph.Edge{I: 2, J: 3}, graph.Edge{I: 1, J: 6})
	want := [][]int{{0}, {1, 4, 6}, {2, 3}, {5}}
	if got := g.Components(); !slices.EqualFunc(got, want, slices.Equal[[]int]) || g.IsConnected() {
		t.Errorf("components %v, want %v", got, want)
	}
	if g := mustNew(t, 1); !g.IsConnected() {
		t.Error("one node is not connected")
	}
	if g := mustNew(t, 0); g.IsConnected() {
		t.Error("no node is connected")
	}
}

// TestComponentsTwin compares the result of Components with a simple reachability search.
func TestComponentsTwin(t *testing.T) {
	rng := newRNG(3)
	for range 200 {
		n := 1 + rng.IntN(15)
		g := graph.RandomGraph(n, rng.Float64()/4, rng)
		label := make([]int, n)
		for i := range label {
			label[i] = i
		}
		for range n {
			for _, e := range g.Edges() {
				label[e.I] = min(label[e.I], label[e.J])
				label[e.J] = label[e.I]
			}
		}
		parts := g.Components()
		for _, part := range parts {
			for _, i := range part {
				if label[i] != part[0] {
					t.Fatalf("%v: node %d is in the part of %d, not of %d", g.Edges(), i, part[0], label[i])
				}
			}
		}
	}
}

func TestConnectedDraws(t *testing.T) {
	rng := newRNG(4)
	for _, n := range []int{1, 2, 10, 40} {
		geo, err := graph.ConnectedGeographicGraph(n, 0.35, rng)
		if err != nil || !geo.IsConnected() || len(geo.Positions()) != n {
			t.Errorf("geographic graph of %d nodes: %v", n, err)
		}
		random, err := graph.ConnectedRandomGraph(n, 0.3, rng)
		if err != nil || !random.IsConnected() || random.NodeCount() != n {
			t.Errorf("random graph of %d nodes: %v", n, err)
		}
	}
	_, err := graph.ConnectedGeographicGraph(300, 0.01, rng)
	wantError(t, err, "none of 2222 geographic graphs of 300 nodes with radius 0.01 in the unit square was connected")
	_, err = graph.ConnectedRandomGraph(300, 0, rng)
	wantError(t, err, "none of 2222 random graphs of 300 nodes with link probability 0 was connected")
}

// TestConnectedDrawsAreTheFirst checks that the result is the first connected graph in a sequence of independent random
// graphs. The result is therefore a random graph conditioned on connectedness.
func TestConnectedDrawsAreTheFirst(t *testing.T) {
	got, err := graph.ConnectedGeographicGraph(10, 0.35, newRNG(5))
	if err != nil {
		t.Fatal(err)
	}
	rng, points, draws := newRNG(5), make([]graph.Point, 10), 0
	for {
		draws++
		graph.ScatterPoints(points, rng)
		if g := graph.GeographicGraph(points, 0.35); g.IsConnected() {
			if !slices.Equal(g.Edges(), got.Edges()) || !slices.Equal(points, got.Positions()) {
				t.Errorf("draw %d is connected and not the one that was taken", draws)
			}
			return
		}
	}
}

func TestDisconnectedErrorNamesParts(t *testing.T) {
	_, err := graph.NewMixingMatrix(mustNew(t, 5, graph.Edge{I: 0, J: 2}, graph.Edge{I: 1, J: 3}),
		spec.EdgeWeightsBestConstant)
	wantError(t, err, "best-constant weights: the graph is not connected: it has 3 components, {0, 2} {1, 3} {4}")
	if parts := new(graph.DisconnectedError); !errors.As(err, &parts) || len(parts.Components) != 3 {
		t.Errorf("%v is no DisconnectedError of 3 parts", err)
	}
	_, err = graph.NewMixingMatrix(mustNew(t, 30, graph.RingGraph(12).Edges()...), spec.EdgeWeightsBestConstant)
	wantError(t, err,
		"19 components, {0, 1, 2, 3, 4, 5, 6, 7, … (12 in total)} {12} {13} {14} {15} {16} {17} {18} and 11 more")
	_, err = graph.NewMixingMatrix(mustNew(t, 0), spec.EdgeWeightsBestConstant)
	wantError(t, err, "the graph has no nodes")
}

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
}
