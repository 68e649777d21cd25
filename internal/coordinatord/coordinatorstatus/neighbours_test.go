package coordinatorstatus

import (
	"reflect"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestNeighbourGraph checks the graph, its isolated agents and the suspended edges, which end after their last round.
func TestNeighbourGraph(t *testing.T) {
	v := New("", "", time.Now, status.NewBoard(time.Now, nil))
	if g := v.neighbourGraph(); len(g.Edges) != 0 || g.SpectralGap != nil {
		t.Errorf("before the first round: %+v", g)
	}
	v.Observe(meshplan.MeshComputed{Round: 3, MixingGraph: meshplan.MixingGraph{
		Edges: []round.MixingEdge{{A: "a", B: "b", MixingWeight: 0.25}}, MixingAgents: 3, SecondEigenvalue: 0.75,
		ConnectedComponents: [][]wire.AgentID{{"a", "b"}, {"c"}}, UnlocatedAgents: []wire.AgentID{"d"}}})
	suspend := func(r wire.RoundID, a, b wire.AgentID, through wire.RoundID) {
		v.Observe(round.EdgeEnded{MixingBlockRound: r, MeanDistance: 2, Edge: round.EndedEdge{A: a, B: b,
			Reason: wire.EdgeEndNotMixing, ExcludedThroughRound: through}})
	}
	suspend(3, "a", "b", 5)
	suspend(3, "a", "c", 9)
	suspend(6, "a", "c", 12) // replaces the entry of round 3, and drops the suspension that ended with round 5
	if n := len(v.suspendedEdges); n != 1 {
		t.Errorf("%d suspensions are stored: %+v", n, v.suspendedEdges)
	}
	λ, gap := 0.75, 0.25
	want := NeighbourGraph{Components: [][]wire.AgentID{{"a", "b"}, {"c"}}, Isolated: []wire.AgentID{"c", "d"},
		Edges:            []NeighbourEdge{{"a", "b", 0.25}},
		Suspended:        []SuspendedEdge{{"a", "c", wire.EdgeEndNotMixing.String(), 12, 2}},
		SecondEigenvalue: &λ, SpectralGap: &gap}
	if got := v.neighbourGraph(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	v.Observe(round.RoundOpened{Round: 13})
	if got := v.neighbourGraph(); len(got.Suspended) != 0 {
		t.Errorf("after the last round of the suspension: %+v", got.Suspended)
	}
}
