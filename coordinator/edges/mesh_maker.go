// Package edges computes the graph of neighbours that mix their models in a round, and the edge weights. The edges
// derive from the agents' locations, a file, a fixed shape or neighbour discovery. The coordinator requests the graph
// before each round with mixing.
package edges

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// MeshMaker computes the weighted edges of a round.
type MeshMaker struct {
	EdgeSource      spec.EdgeSource
	Radius          float64      // maximum edge length for EdgesRadius, in the unit of the agents' locations
	ConfiguredGraph *graph.Graph // graph for EdgesFile; its node ids are agent ids
	WeightRule      spec.EdgeWeightRule
}

// New returns a MeshMaker. file is the path of an unweighted graph file and is used only for EdgesFile.
func New(edges spec.EdgeSource, radius float64, file string, rule spec.EdgeWeightRule) (*MeshMaker, error) {
	m := &MeshMaker{EdgeSource: edges, Radius: radius, WeightRule: rule}
	if edges != spec.EdgesFile {
		return m, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	g, weights, err := graph.ParseGraphFile(data, file)
	if err == nil && weights != nil {
		err = fmt.Errorf(
			"%s: the file contains edge weights, but the coordinator computes the weights with rule %s: remove the "+
				"weights from the file",
			file, m.WeightRule)
	}
	m.ConfiguredGraph = g
	return m, err
}

// MakeMesh returns the weighted edges between agents, which must be in id order. Agents that cannot mix have no edges.
// The weights of each connected component are computed separately.
func (m *MeshMaker) MakeMesh(agents []round.MixingAgent) (meshplan.MixingGraph, error) {
	var mesh meshplan.MixingGraph
	var mixing []round.MixingAgent
	for _, a := range agents {
		switch {
		case !a.CanMix:
		case m.EdgeSource == spec.EdgesRadius && !a.Location.IsKnown:
			mesh.UnlocatedAgents = append(mesh.UnlocatedAgents, a.ID)
		default:
			mixing = append(mixing, a)
		}
	}
	mesh.MixingAgents, mesh.SecondEigenvalue, mesh.EigenvalueRatio = len(mixing), 1, math.Inf(1)
	if len(mixing) == 0 {
		return mesh, nil
	}
	g, err := m.buildGraph(mixing)
	if err == nil {
		g, err = withoutAvoidedEdges(g, mixing)
	}
	if err != nil {
		return mesh, err
	}
	for _, d := range g.Degrees() {
		if d > wire.MaxNeighbors {
			return mesh, fmt.Errorf("an agent has %d neighbours, but the limit is %d: configure a graph with fewer "+
				"edges in mesh.edges", d,
				wire.MaxNeighbors)
		}
	}
	weights := make([]float64, len(g.Edges()))
	for _, part := range g.Components() {
		if err := m.weighComponent(weights, g, part); err != nil {
			return mesh, err
		}
		ids := make([]wire.AgentID, len(part))
		for k, i := range part {
			ids[k] = mixing[i].ID
		}
		mesh.ConnectedComponents = append(mesh.ConnectedComponents, ids)
	}
	slices.SortStableFunc(mesh.ConnectedComponents, func(a, b []wire.AgentID) int { return len(b) - len(a) })
	for k, e := range g.Edges() {
		mesh.Edges = append(mesh.Edges, round.MixingEdge{A: mixing[e.I].ID, B: mixing[e.J].ID,
			MixingWeight: weights[k]})
	}
	w, err := graph.NewMixingMatrixFromWeights(g, weights)
	if err == nil && len(mesh.ConnectedComponents) == 1 {
		mesh.SecondEigenvalue = w.SecondEigenvalue(1)
		mesh.EigenvalueRatio = graph.MixingAlphaOfEigenvalue(mesh.SecondEigenvalue)
	}
	return mesh, err
}

func (m *MeshMaker) buildGraph(agents []round.MixingAgent) (*graph.Graph, error) {
	n := len(agents)
	switch m.EdgeSource {
	case spec.EdgesRing:
		return graph.RingGraph(n), nil
	case spec.EdgesComplete:
		return graph.CompleteGraph(n), nil
	case spec.EdgesRadius:
		places := make([]graph.Point, n)
		for i, a := range agents {
			places[i] = graph.Point{X: a.Location.X, Y: a.Location.Y}
		}
		return graph.GeographicGraph(places, m.Radius), nil
	case spec.EdgesDiscovered:
		return mutualNeighborGraph(agents)
	case spec.EdgesFile:
		at := map[string]int{}
		for i, a := range agents {
			at[string(a.ID)] = i
		}
		var all []graph.Edge
		for _, e := range m.ConfiguredGraph.Edges() {
			i, here := at[m.ConfiguredGraph.NodeID(e.I)]
			j, there := at[m.ConfiguredGraph.NodeID(e.J)]
			if here && there {
				all = append(all, graph.Edge{I: min(i, j), J: max(i, j)})
			}
		}
		return graph.New(n, all)
	}
	return nil, fmt.Errorf("unknown edge source %q", m.EdgeSource)
}

// withoutAvoidedEdges removes the edges between agents that must not mix with each other (MixingAgent.AvoidedAgents).
func withoutAvoidedEdges(g *graph.Graph, agents []round.MixingAgent) (*graph.Graph, error) {
	left := slices.DeleteFunc(slices.Clone(g.Edges()), func(e graph.Edge) bool {
		return slices.Contains(agents[e.I].AvoidedAgents, agents[e.J].ID)
	})
	if len(left) == len(g.Edges()) {
		return g, nil
	}
	return graph.New(len(agents), left)
}

// mutualNeighborGraph connects each pair of agents that list each other as neighbours.
func mutualNeighborGraph(agents []round.MixingAgent) (*graph.Graph, error) {
	at := map[wire.AgentID]int{}
	for i, a := range agents {
		at[a.ID] = i
	}
	var all []graph.Edge
	for i, a := range agents {
		for _, id := range a.Neighbors {
			if j, here := at[id]; here && j > i && slices.Contains(agents[j].Neighbors, a.ID) {
				all = append(all, graph.Edge{I: i, J: j})
			}
		}
	}
	return graph.New(len(agents), all)
}

// weighComponent computes the weights of the edges within one connected component and stores them in weights.
func (m *MeshMaker) weighComponent(weights []float64, g *graph.Graph, part []int) error {
	place := map[int]int{}
	for k, i := range part {
		place[i] = k
	}
	var of []int // indices in g of the component's edges
	var all []graph.Edge
	for k, e := range g.Edges() {
		if i, in := place[e.I]; in {
			of = append(of, k)
			all = append(all, graph.Edge{I: i, J: place[e.J]})
		}
	}
	if len(all) == 0 {
		return nil
	}
	p, err := graph.New(len(part), all)
	if err != nil {
		return err
	}
	w, err := graph.NewMixingMatrix(p, m.WeightRule)
	if err != nil {
		return err
	}
	live := w.EdgeWeights
	if m.WeightRule == spec.EdgeWeightsFastest {
		live = make([]float64, len(w.EdgeWeights))
		graph.CapNodeWeightSums(live, p, w.EdgeWeights)
	}
	for k, number := range of {
		weights[number] = live[k]
	}
	return nil
}
