package task_test

import (
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSource checks that the random numbers of an agent depend only on the seed, the round and the agent.
func TestSource(t *testing.T) {
	type key struct {
		seed  uint64
		round wire.RoundID
		agent wire.AgentID
	}
	seen := map[[3]uint64]key{}
	for seed := range uint64(4) {
		for round := range wire.RoundID(4) {
			for _, agent := range []wire.AgentID{"a", "b", "ab", "a0"} {
				first := func() (d [3]uint64) {
					rng := task.AgentRand(seed, round, task.AgentRandomKey(agent))
					for i := range d {
						d[i] = rng.Uint64()
					}
					return d
				}
				k, d := key{seed, round, agent}, first()
				if d != first() {
					t.Errorf("%+v draws another way the second time", k)
				}
				if other, taken := seen[d]; taken {
					t.Errorf("%+v and %+v draw alike", k, other)
				}
				seen[d] = k
			}
		}
	}
}

// TestSourceStays checks that a seed always gives the same random numbers, so that recorded experiments can be
// repeated.
func TestSourceStays(t *testing.T) {
	var pcg rand.PCG
	task.ReseedAgentRand(&pcg, 7, 3, task.AgentRandomKey("node-1"))
	rng := task.AgentRand(7, 3, task.AgentRandomKey("node-1"))
	// The expected numbers were computed by another implementation.
	for i, want := range []uint64{0x7b0e63b731bdeee8, 0xfc0d9cc147326bb2} {
		a, b := pcg.Uint64(), rng.Uint64()
		if a != want || b != want {
			t.Errorf("draw %d: %#x and %#x, want %#x", i, a, b, want)
		}
	}
}
