package wire_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestShare checks that the candidate is offered to the agents that docs/PROTOCOL.md defines. The number of these
// agents must match the share for any agent ids, and another candidate must be offered to different agents.
func TestShare(t *testing.T) {
	const agents = 20000
	first, second, both := 0, 0, 0
	of := func(version byte, share float64) *wire.Rollout {
		return &wire.Rollout{CandidateModel: wire.ModelRef{Run: 1, Version: 2, ParametersDigest: wire.Digest{version}},
			CandidateAgentShare: share}
	}
	a, b := of(1, 0.1), of(2, 0.1)
	for i := range agents {
		id := wire.AgentID(fmt.Sprintf("press-%05d", i))
		hash := make([]byte, 32)
		hash[0] = 1
		sum := sha256.Sum256([]byte("fedmesh/rollout" + string(hash) + string(id)))
		want := binary.BigEndian.Uint64(sum[:])>>11 < uint64(math.Ceil(0.1*(1<<53)))
		if a.OffersCandidateTo(id) != want {
			t.Fatalf("%s: %t", id, !want)
		}
		if a.OffersCandidateTo(id) {
			first++
		}
		if b.OffersCandidateTo(id) {
			second++
		}
		if a.OffersCandidateTo(id) && b.OffersCandidateTo(id) {
			both++
		}
		if !of(1, 1).OffersCandidateTo(id) || (&wire.Rollout{CandidateAgentShare: 1}).OffersCandidateTo(id) {
			t.Fatalf("%s: not in a share of all, or in one of no candidate", id)
		}
	}
	deviation := math.Sqrt(agents * 0.1 * 0.9)
	if math.Abs(float64(first)-0.1*agents) > 4*deviation || math.Abs(float64(second)-0.1*agents) > 4*deviation ||
		math.Abs(float64(both)-0.01*agents) > 4*math.Sqrt(agents*0.01*0.99) {
		t.Errorf("%d, %d and both %d of %d", first, second, both, agents)
	}
}
