package plot_test

import (
	"bytes"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/spec"
)

const size = 10 * vg.Centimeter

func svg(t *testing.T, n plot.Network) string {
	t.Helper()
	var b bytes.Buffer
	if err := plot.SVG(&b, n, size, size); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func geographic(t *testing.T) *graph.Graph {
	t.Helper()
	g, err := graph.ConnectedGeographicGraph(20, 0.35, rand.New(rand.NewPCG(3, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestNetworkShowsAll(t *testing.T) {
	g := geographic(t)
	m, err := graph.NewMixingMatrix(g, spec.EdgeWeightsMetropolis)
	if err != nil {
		t.Fatal(err)
	}
	n := plot.Network{Graph: g, Weights: m.EdgeWeights, Title: "Twenty devices", Caption: "r = 0.35"}
	text := svg(t, n)
	if got, want := strings.Count(text, "<path"), len(g.Edges())+2*g.NodeCount(); got != want {
		t.Errorf("%d shapes, want %d: an edge each, and a disk with its rim a node", got, want)
	}
	for _, want := range []string{">Twenty devices<", ">r = 0.35<", ">0<", ">19<"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	if again := svg(t, n); again != text {
		t.Error("the same graph gives another picture")
	}
}

func TestNetworkStyles(t *testing.T) {
	const red, yellow, green, orange = "#9E1B32", "#F2B134", "#2E8B68", "#C26A12"
	const edges = "from,to,weight\nleft,middle,0.5\nmiddle,right,-0.25\nright,left,0.25\nx,y,0.5\n"
	g, weights, err := graph.ParseGraphFile([]byte(edges), "g.csv")
	if err != nil {
		t.Fatal(err)
	}
	n := plot.Network{Graph: g, Weights: weights, Health: []float64{0, 0.5, 1, 1}}
	text := svg(t, n)
	for what, count := range map[string]int{
		"stroke:" + red: 1, "stroke:" + yellow: 1, "stroke:" + green: 2, "fill:" + orange: 2, "stroke-dasharray": 1,
		"stroke-width:3.6": 2,
		">middle<":         1, ">x<": 1,
	} {
		if got := strings.Count(text, what); got != count {
			t.Errorf("%s is there %d times, want %d", what, got, count)
		}
	}
	n.Health = n.Health[:2]
	defer func() {
		if recover() == nil {
			t.Error("two health values for four edges are taken")
		}
	}()
	svg(t, n)
}

// TestNetworkOfAnySize draws graphs whose nodes all have the same position, and graphs with too many nodes for labels.
func TestNetworkOfAnySize(t *testing.T) {
	for _, g := range []*graph.Graph{graph.CompleteGraph(0), graph.RingGraph(1), graph.RingGraph(2),
		graph.RingGraph(200),
		graph.GeographicGraph(make([]graph.Point, 3), 1)} {
		text := svg(t, plot.Network{Graph: g, Weights: make([]float64, len(g.Edges()))})
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%d nodes at no place:\n%s", g.NodeCount(), text)
		}
		if named := strings.Contains(text, "<text"); named != (g.NodeCount() > 0 && g.NodeCount() < 50) {
			t.Errorf("%d nodes: named is %v", g.NodeCount(), named)
		}
	}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := plot.PNG(&b, plot.Network{Graph: geographic(t)}, size, size); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := picture.Bounds().Dx(); got != 567 { // width of 10 cm at 144 dpi in pixels
		t.Errorf("%d dots wide", got)
	}
	if r, g, b, a := picture.At(0, 0).RGBA(); r&g&b&a != 0xffff {
		t.Error("the ground is not white")
	}
}
