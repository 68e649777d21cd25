package round

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// DrawnAgent is an agent drawn for a round, and how often: more than once only with
// replacement.
type DrawnAgent struct {
	Agent     wire.AgentID
	DrawCount int
	Odds      float64 // as a Place's
}

// NewDrawRand returns the source of a round's draws. It depends on the seed and
// the round only, so that a new attempt of a round draws the same agents.
func NewDrawRand(seed uint64, r wire.RoundID) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(r)))
}

// SampleAgentsWithoutReplacement draws min(l, len(agents)) agents as
// [IndexSampler.DrawWithoutReplacement] does. The result is in id order and depends on
// the set of agents, not on their order.
func SampleAgentsWithoutReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []DrawnAgent {
	var y IndexSampler
	return agentsAtDrawnIndices(agents, y.DrawWithoutReplacement(len(agents), l, rng))
}

// SampleAgentsWithReplacement draws l times as [IndexSampler.DrawWithReplacement] does. The
// result is in id order; their DrawCounts add up to l.
func SampleAgentsWithReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []DrawnAgent {
	var y IndexSampler
	return agentsAtDrawnIndices(agents, y.DrawWithReplacement(len(agents), l, rng))
}

// agentsAtDrawnIndices returns the agents at these indices of the list in id order.
func agentsAtDrawnIndices(agents []wire.AgentID, places []DrawnIndex) []DrawnAgent {
	sorted := slices.Sorted(slices.Values(agents))
	draws := make([]DrawnAgent, len(places))
	for i, p := range places {
		draws[i] = DrawnAgent{sorted[p.Index], p.DrawCount, p.Odds}
	}
	return draws
}
