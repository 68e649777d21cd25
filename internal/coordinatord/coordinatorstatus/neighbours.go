package coordinatorstatus

import (
	"maps"
	"net/http"
	"slices"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// NeighbourGraph is the graph of the last round in which neighbours exchanged parameters.
type NeighbourGraph struct {
	// Components contains the agents of each connected component, the largest component first.
	Components [][]wire.AgentID `json:"components"`
	// Isolated contains the agents without a neighbour: those alone in their component, and those without a location.
	Isolated         []wire.AgentID  `json:"isolated"`
	Edges            []NeighbourEdge `json:"edges"`
	Suspended        []SuspendedEdge `json:"suspended"`
	SecondEigenvalue *float64        `json:"second_eigenvalue,omitempty"` // |λ₂|; 1 if the graph is not connected
	SpectralGap      *float64        `json:"spectral_gap,omitempty"`      // 1 − |λ₂|
}

// NeighbourEdge is a pair of agents that exchange parameters.
type NeighbourEdge struct {
	A      wire.AgentID `json:"a"`
	B      wire.AgentID `json:"b"`
	Weight float64      `json:"weight"` // mixing weight w_ij
}

// SuspendedEdge is a pair of neighbours that do not exchange parameters for some rounds.
type SuspendedEdge struct {
	A            wire.AgentID `json:"a"`
	B            wire.AgentID `json:"b"`
	Reason       string       `json:"reason"`
	ThroughRound uint64       `json:"until"` // last round of the suspension
	// Distance is the mean distance ‖x_j − x_i‖ between the agents' parameters. It is 0 if neither agent has reported
	// the distance.
	Distance float64 `json:"distance,omitempty"`
}

// recordEdgeEnded records the suspension of an edge, and forgets the suspensions that are over.
func (v *StatusTracker) recordEdgeEnded(f round.EdgeEnded) {
	v.suspendedEdges = slices.DeleteFunc(v.suspendedEdges, func(s SuspendedEdge) bool {
		return s.ThroughRound < uint64(f.MixingBlockRound) || s.A == f.Edge.A && s.B == f.Edge.B
	})
	v.suspendedEdges = append(v.suspendedEdges, SuspendedEdge{f.Edge.A, f.Edge.B, f.Edge.Reason.String(),
		uint64(f.Edge.ExcludedThroughRound), f.MeanDistance})
}

// NeighboursRoute returns the API route that serves the graph of neighbours.
func (v *StatusTracker) NeighboursRoute() api.Route {
	return api.GetRoute("/v1/neighbours",
		"Return the graph of the last round in which neighbours exchanged parameters.",
		func(*http.Request) (NeighbourGraph, error) { return v.neighbourGraph(), nil })
}

func (v *StatusTracker) neighbourGraph() NeighbourGraph {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.mixingGraph
	n := NeighbourGraph{Components: [][]wire.AgentID{}, Edges: make([]NeighbourEdge, 0, len(g.Edges)),
		Suspended: []SuspendedEdge{}}
	alone := map[wire.AgentID]bool{}
	for _, agent := range g.UnlocatedAgents {
		alone[agent] = true
	}
	for _, component := range g.ConnectedComponents {
		if n.Components = append(n.Components, component); len(component) == 1 {
			alone[component[0]] = true
		}
	}
	n.Isolated = slices.AppendSeq([]wire.AgentID{}, maps.Keys(alone))
	slices.Sort(n.Isolated)
	for _, e := range g.Edges {
		n.Edges = append(n.Edges, NeighbourEdge{e.A, e.B, e.MixingWeight})
	}
	for _, s := range v.suspendedEdges {
		if s.ThroughRound >= v.current.Round {
			n.Suspended = append(n.Suspended, s)
		}
	}
	if g.MixingAgents > 0 {
		gap := 1 - g.SecondEigenvalue
		n.SecondEigenvalue, n.SpectralGap = observe.FiniteOrNil(g.SecondEigenvalue), observe.FiniteOrNil(gap)
	}
	return n
}
