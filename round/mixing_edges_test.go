package round_test

import (
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestMeshAgentEqual checks that MixingAgent.Equal detects a change of every field.
func TestMeshAgentEqual(t *testing.T) {
	agent := func(change func(a *round.MixingAgent)) round.MixingAgent {
		a := round.MixingAgent{ID: "a", CanMix: true, Location: wire.AgentLocation{IsKnown: true, X: 1, Y: 2},
			Neighbors: []wire.AgentID{"b"}}
		change(&a)
		return a
	}
	before := agent(func(*round.MixingAgent) {})
	if !before.Equal(agent(func(*round.MixingAgent) {})) {
		t.Error("nothing has changed, and it is not the same")
	}
	for what, change := range map[string]func(a *round.MixingAgent){
		"the agent":   func(a *round.MixingAgent) { a.ID = "c" },
		"mixing":      func(a *round.MixingAgent) { a.CanMix = false },
		"the place":   func(a *round.MixingAgent) { a.Location.Y = 3 },
		"a neighbour": func(a *round.MixingAgent) { a.Neighbors = []wire.AgentID{"b", "c"} },
	} {
		if before.Equal(agent(change)) {
			t.Errorf("%s has changed, and it is the same", what)
		}
	}
}
