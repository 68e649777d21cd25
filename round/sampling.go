package round

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// Draw is an agent drawn for a round, and how often: more than once only with
// replacement.
type Draw struct {
	Agent wire.AgentID
	Times int
}

// drawSource returns the source of a round's draws. It depends on the seed and
// the round only, so that a new attempt of a round draws the same agents.
func drawSource(seed uint64, r wire.RoundID) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(r)))
}

// SampleWithoutReplacement draws min(l, len(agents)) agents uniformly without
// replacement: Pr{k ∈ L_i} = L/K (ch5 (5.8)). The result is in id order and
// depends on the set of agents, not on their order.
func SampleWithoutReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []Draw {
	pool := slices.Clone(agents)
	slices.Sort(pool)
	l = min(l, len(pool))
	for i := range l {
		j := i + rng.IntN(len(pool)-i)
		pool[i], pool[j] = pool[j], pool[i]
	}
	slices.Sort(pool[:l])
	draws := make([]Draw, l)
	for i, a := range pool[:l] {
		draws[i] = Draw{a, 1}
	}
	return draws
}

// SampleWithReplacement draws l times uniformly with replacement (feddec Alg. 1
// line 9). The result is in id order; its Times add up to l.
func SampleWithReplacement(agents []wire.AgentID, l int, rng *rand.Rand) []Draw {
	pool := slices.Clone(agents)
	slices.Sort(pool)
	times := make([]int, len(pool))
	for range l {
		times[rng.IntN(len(pool))]++
	}
	var draws []Draw
	for i, n := range times {
		if n > 0 {
			draws = append(draws, Draw{pool[i], n})
		}
	}
	return draws
}
