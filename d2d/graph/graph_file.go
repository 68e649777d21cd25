package graph

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
)

// GraphFileError describes an error in a graph file and its position.
type GraphFileError struct {
	File         string
	Line, Column int // position of the error, counted from 1; 0 means that the error concerns the whole file
	Problem      string
}

// Error returns a text in the form "FILE:LINE:COLUMN: problem".
func (e *GraphFileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
}

// ParseGraphFile reads a graph file. file is its name in errors. weights has one weight per edge in the graph's order,
// or is nil if the file has no weights. The file is an edge list as CSV, whose first line is "from,to" or
// "from,to,weight":
//
//	from,to,weight
//	a,b,0.25
//	b,c,0.5
//
// or JSON, which can also contain positions and nodes without edges:
//
//	{"nodes": [{"id": "a", "x": 0.1, "y": 0.9}, …], "edges": [{"from": "a", "to": "b", "weight": 0.25}, …]}
//
// JSON nodes are numbered in file order. CSV nodes are numbered in the order of their ids, numerically if all are whole
// numbers. An invalid file gives a [*GraphFileError].
func ParseGraphFile(data []byte, file string) (g *Graph, weights []float64, err error) {
	r := &graphFileReader{fileName: file, indexByNodeID: map[string]int{}, positionByEdge: map[Edge]filePosition{}}
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '{' {
		err = r.readJSON(data)
	} else {
		err = r.readCSV(data)
	}
	if err != nil {
		return nil, nil, err
	}
	return r.buildGraph()
}

// filePosition is a line and a column in a file, both counted from 1.
type filePosition struct{ line, column int }

// graphFileReader collects the content of a graph file in either format, CSV or JSON.
type graphFileReader struct {
	fileName       string
	nodeIDs        []string
	indexByNodeID  map[string]int // number of each node, by the node's id
	nodePositions  []Point
	edges          []weightedEdge
	positionByEdge map[Edge]filePosition
}

type weightedEdge struct {
	Edge
	weight *float64
}

func (r *graphFileReader) errorAt(at filePosition, format string, args ...any) error {
	return &GraphFileError{File: r.fileName, Line: at.line, Column: at.column, Problem: fmt.Sprintf(format, args...)}
}

// addEdge adds an edge between two known nodes. The parameter at is the position of the edge in the file.
func (r *graphFileReader) addEdge(at filePosition, from, to string, weight *float64) error {
	i, j := r.indexByNodeID[from], r.indexByNodeID[to]
	e := Edge{min(i, j), max(i, j)}
	if i == j {
		return r.errorAt(at, "edge %s–%s connects a node to itself", from, to)
	}
	if first, twice := r.positionByEdge[e]; twice {
		return r.errorAt(at, "duplicate edge %s–%s, first defined in line %d; edges have no "+
			"direction", from, to, first.line)
	}
	if len(r.edges) > 0 && (weight == nil) != (r.edges[0].weight == nil) {
		return r.errorAt(at, "edge %s–%s: either all edges or no edges must have a weight", from, to)
	}
	if weight != nil && (math.IsNaN(*weight) || math.IsInf(*weight, 0)) {
		return r.errorAt(at, "edge %s–%s: weight %v is not finite", from, to, *weight)
	}
	r.positionByEdge[e] = at
	r.edges = append(r.edges, weightedEdge{e, weight})
	return nil
}

func (r *graphFileReader) buildGraph() (*Graph, []float64, error) {
	if len(r.nodeIDs) == 0 {
		return nil, nil, r.errorAt(filePosition{}, "the graph has no nodes")
	}
	sort.Slice(r.edges, func(i, j int) bool {
		a, b := &r.edges[i], &r.edges[j]
		return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) < 0
	})
	g := &Graph{nodeCount: len(r.nodeIDs), nodePositions: r.nodePositions}
	var weights []float64
	for _, e := range r.edges {
		g.edges = append(g.edges, e.Edge)
		if e.weight != nil {
			weights = append(weights, *e.weight)
		}
	}
	for i, id := range r.nodeIDs {
		if id != strconv.Itoa(i) {
			g.nodeIDs = r.nodeIDs
		}
	}
	return g, weights, nil
}

// JSON encodes a graph in the format of [ParseGraphFile], with one weight per edge unless weights is nil.
func (g *Graph) JSON(weights []float64) []byte {
	var b bytes.Buffer
	line := func(k int, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("graph: %v", err)) // This cannot happen, since non-finite values were rejected earlier.
		}
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(text)
	}
	b.WriteString(`{"nodes": [`)
	for i := range g.nodeCount {
		n := jsonNode{ID: g.NodeID(i)}
		if g.nodePositions != nil {
			n.X, n.Y = &g.nodePositions[i].X, &g.nodePositions[i].Y
		}
		line(i, n)
	}
	b.WriteString("\n], \"edges\": [")
	for k, e := range g.edges {
		edge := jsonEdge{From: g.NodeID(e.I), To: g.NodeID(e.J)}
		if weights != nil {
			edge.Weight = &weights[k]
		}
		line(k, edge)
	}
	b.WriteString("\n]}\n")
	return b.Bytes()
}
