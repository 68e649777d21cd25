package round

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// DrawnAgent is an agent drawn for a round. DrawCount exceeds 1 only if agents are drawn with replacement.
type DrawnAgent struct {
	Agent     wire.AgentID
	DrawCount int
	Odds      float64 // odds: the agent's draw probability times the number of agents; 0 means 1
}

// NewDrawRand returns the random source of a round's draws. It depends only on the seed and the round, so that a new
// attempt of a round draws the same agents.
func NewDrawRand(seed uint64, r wire.RoundID) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(r)))
}

// SampleAgentsWithoutReplacement draws min(l, len(agents)) agents, each at most once. The result is in id order and
// does not depend on the order of agents.
func SampleAgentsWithoutReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []DrawnAgent {
	var y IndexSampler
	return agentsAtDrawnIndices(agents, y.DrawWithoutReplacement(len(agents), l, rng))
}

// SampleAgentsWithReplacement draws l agents, where an agent may be drawn several times. The result is in id order; its
// draw counts sum to l.
func SampleAgentsWithReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []DrawnAgent {
	var y IndexSampler
	return agentsAtDrawnIndices(agents, y.DrawWithReplacement(len(agents), l, rng))
}

// agentsAtDrawnIndices returns the agents at the drawn indices of the sorted list of agents, in id order.
func agentsAtDrawnIndices(agents []wire.AgentID, places []DrawnIndex) []DrawnAgent {
	sorted := slices.Sorted(slices.Values(agents))
	draws := make([]DrawnAgent, len(places))
	for i, p := range places {
		draws[i] = DrawnAgent{sorted[p.Index], p.DrawCount, p.Odds}
	}
	return draws
}
