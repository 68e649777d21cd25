// Package edges says which agents mix with each other, and with which weights:
// the graph of a round, from the places of the agents that are there, from a
// file, of a fixed shape, or as they have found each other. The coordinator asks for it before each round in
// which agents mix.
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

// MeshMaker makes the edges of a round.
type MeshMaker struct {
	EdgeSource      spec.EdgeSource
	Radius          float64      // for EdgesRadius, in the unit of the agents' places
	ConfiguredGraph *graph.Graph // for EdgesFile; its node ids are agent ids
	WeightRule      spec.EdgeWeightRule
}

// New returns a maker; file is the path of a graph file without weights, for EdgesFile.
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
		err = fmt.Errorf("%s: gives weights to its edges, and the coordinator weighs them itself by the rule %s: "+
			"leave the weights out", file, m.WeightRule)
	}
	m.ConfiguredGraph = g
	return m, err
}

// MakeMesh makes the edges between agents, which are in id order. Agents that do
// not mix get none. Each connected part is weighed by itself.
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
			return mesh, fmt.Errorf("an agent has %d neighbours, more than %d: make the graph sparser", d,
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
	return nil, fmt.Errorf("no edges come from %q", m.EdgeSource)
}

// withoutAvoidedEdges leaves out the edges between agents that avoid each other.
func withoutAvoidedEdges(g *graph.Graph, agents []round.MixingAgent) (*graph.Graph, error) {
	left := slices.DeleteFunc(slices.Clone(g.Edges()), func(e graph.Edge) bool {
		return slices.Contains(agents[e.I].AvoidedAgents, agents[e.J].ID)
	})
	if len(left) == len(g.Edges()) {
		return g, nil
	}
	return graph.New(len(agents), left)
}

// mutualNeighborGraph joins agents that name each other.
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

// weighComponent stores the weights of the edges within one connected part.
func (m *MeshMaker) weighComponent(weights []float64, g *graph.Graph, part []int) error {
	place := map[int]int{}
	for k, i := range part {
		place[i] = k
	}
	var of []int // the edges of the part, by their numbers in g
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
