package graph_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/spec"
)

func TestParseCSV(t *testing.T) {
	g, weights, err := graph.ParseGraphFile([]byte("\ufefffrom,to,weight\nb,a,0.25\n# no comment,a,1e-1\nb, c,-0.5\n"),
		"edges.csv")
	if err != nil {
		t.Fatal(err)
	}
	// The node ids, sorted by bytes, are "# no comment", a, b, c.
	if want := []graph.Edge{{I: 0, J: 1}, {I: 1, J: 2}, {I: 2, J: 3}}; !slices.Equal(g.Edges(), want) {
		t.Errorf("edges %v", g.Edges())
	}
	if want := []float64{0.1, 0.25, -0.5}; !slices.Equal(weights, want) {
		t.Errorf("weights %v", weights)
	}
	if g.NodeID(3) != "c" || g.Positions() != nil {
		t.Errorf("node 3 is %q", g.NodeID(3))
	}
	g, weights, err = graph.ParseGraphFile([]byte("from,to\n10,9\n9,2\n"), "edges.csv")
	if err != nil || weights != nil || g.NodeID(0) != "2" || g.NodeID(2) != "10" {
		t.Errorf("numbers are not in their order: %v, weights %v, error %v", g, weights, err)
	}
}

func TestParseJSON(t *testing.T) {
	g, weights, err := graph.ParseGraphFile([]byte(`
		{"edges": [{"from": "left", "to": "right", "weight": 0.5}],
		 "nodes": [{"id": "right", "x": 1, "y": 0}, {"id": "left", "x": -1, "y": 0.5}, {"id": "alone", "x": 0, "y": 7}]}`), "g.json")
	if err != nil {
		t.Fatal(err)
	}
	if g.NodeCount() != 3 || g.NodeID(1) != "left" || g.Edges()[0] != (graph.Edge{I: 0, J: 1}) || weights[0] != 0.5 ||
		g.Positions()[2] != (graph.Point{X: 0, Y: 7}) {
		t.Errorf("read as %+v with weights %v", g, weights)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	g, err := graph.ConnectedGeographicGraph(12, 0.5, newRNG(1))
	if err != nil {
		t.Fatal(err)
	}
	weights := mustMix(t, g, spec.EdgeWeightsMetropolis).EdgeWeights
	for _, w := range [][]float64{nil, weights} {
		text := g.JSON(w)
		again, read, err := graph.ParseGraphFile(text, "g.json")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !slices.Equal(read, w) || !slices.Equal(again.Edges(), g.Edges()) ||
			!slices.Equal(again.Positions(), g.Positions()) ||
			string(again.JSON(w)) != string(text) {
			t.Errorf("another graph came back from\n%s", text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", `f: file is empty: the first line must be "from,to" or "from,to,weight"`},
		{"no header", "a,b\nb,c\n", `f:1:1: the first line must be "from,to" or "from,to,weight", not "a,b"`},
		{"header alone", "from,to\n", "f: the graph has no nodes"},
		{"short row", "from,to,weight\na,b,1\na,c\n", "f:3:1: wrong number of fields"},
		{"quote", "from,to\na,\"b\n", `f:2:6: extraneous or missing " in quoted-field`},
		{"empty id", "from,to\na,b\nc,\n", `f:3:3: invalid node id "": must be`},
		{"no text", "from,to\na,\xff\n", `f:2:3: invalid node id "\xff": must be`},
		{"weight", "from,to,weight\na,b,x\n", `f:2:5: "x" is not a number`},
		{"infinite weight", "from,to,weight\na,b,Inf\n", "f:2:1: edge a–b: weight +Inf is not finite"},
		{"loop", "from,to\na,b\nb,b\n", "f:3:1: edge b–b connects a node to itself"},
		{"twice", "from,to\na,b\nb,c\nb,a\n",
			"f:4:1: duplicate edge b–a, first defined in line 2; edges have no direction"},

		{"truncated", `{"nodes": [{"id": "a"}`, "f:1:23: unexpected end of the graph file"},
		{"syntax", "{\"nodes\": [\n  {\"id\": \"a\"},\n  {\"id\" \"b\"}]}",
			"f:3:3: invalid character '\"' after object key; expected an object with id, x and y"},
		{"type", `{"nodes": 7}`, "f:1:11: expected [, found 7"},
		{"key", "{\n \"node\": []}", `f:2:2: unknown key "node": use "nodes" and "edges"`},
		{"field", `{"nodes": [{"id": "a", "z": 1}]}`, `f:1:12: unknown field "z"; expected an object with id, x and y`},
		{"id of a number", `{"nodes": [{"id": 1}]}`, "f:1:12: cannot unmarshal number"},
		{"no id", `{"nodes": [{"x": 1, "y": 1}]}`, `f:1:12: node has no "id"`},
		{"id twice", `{"nodes": [{"id": "a"}, {"id": "a"}]}`, "f:1:25: duplicate node a"},
		{"half a place", `{"nodes": [{"id": "a", "x": 1}]}`,
			"f:1:12: node a: either all nodes or no nodes must have x and y"},
		{"some places", `{"nodes": [{"id": "a", "x": 1, "y": 1}, {"id": "b"}]}`, "f:1:41: node b: either all nodes"},
		{"number too large", `{"nodes": [{"id": "a", "x": 1e999, "y": 1}]}`, "f:1:12: cannot unmarshal number 1e999"},
		{"unknown node", "{\"nodes\": [{\"id\": \"a\"}],\n\"edges\": [{\"from\": \"a\", \"to\": \"b\"}]}",
			`f:2:11: edge a–b refers to the unknown node "b"`},
		{"some weights", `{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "edges": [
			{"from": "a", "to": "b"}, {"from": "a", "to": "c", "weight": 1}]}`,
			"f:2:30: edge a–c: either all edges or no edges"},
		{"behind", `{"nodes": [{"id": "a"}]} x`, "f:1:26: unexpected data after the JSON graph"},
		{"no nodes", `{}`, "f: the graph has no nodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := graph.ParseGraphFile([]byte(c.text), "f")
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v\nwant  %s", err, c.want)
			}
		})
	}
}

// FuzzParse checks that the parser does not panic for any input. It also checks that an accepted graph does not change
// when it is encoded and parsed again.
func FuzzParse(f *testing.F) {
	f.Add([]byte("from,to,weight\na,b,0.25\nb,c,0.5\n"))
	f.Add([]byte(`{"nodes": [{"id": "a", "x": 1, "y": 2}, {"id": "b", "x": 1, "y": 2}], "edges": [{"from": "a", "to": "b"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, weights, err := graph.ParseGraphFile(data, "f")
		if err != nil {
			return
		}
		text := g.JSON(weights)
		again, read, err := graph.ParseGraphFile(text, "again")
		if err != nil || !slices.Equal(read, weights) || !slices.Equal(again.Edges(), g.Edges()) {
			t.Fatalf("%q is written as %s and read as %+v, %v", data, text, again, err)
		}
	})
}
