package world_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/world"
)

// TestPowerCutAtEachOperation cuts the power at each of the first 150 disk operations. Without the build tag nightly,
// it tests only every third operation. The power cut affects the coordinator, one agent, or all parties. It happens at
// an operation of the coordinator's or the agent's disk.
func TestPowerCutAtEachOperation(t *testing.T) {
	const operations = 150
	stride := stride
	if testing.Short() {
		stride = max(stride, 74)
	}
	for _, method := range []world.Method{"", "feddec", "fedavgm"} {
		for _, f := range []world.Fault{
			{Kind: world.PowerCut, Party: world.Coordinator}, {Kind: world.PowerCut, Party: 1},
			{Kind: world.Blackout, Party: world.Coordinator}, {Kind: world.Blackout, Party: 1},
		} {
			f.At, f.For = 1100*time.Millisecond, time.Second
			for f.Ops = 1; f.Ops <= operations; f.Ops += stride {
				p := world.Plan{Seed: 11, Method: method, Agents: 3, Participants: 2, Quorum: 1, Rounds: 3,
					Standardize: true, Faults: []world.Fault{f}}
				if r := world.Run(p, world.Bugs{}, nil); r.Failure != "" {
					t.Errorf("%q, %s of %d at operation %d: %s", method, f.Kind, f.Party, f.Ops, r.Failure)
				}
			}
		}
	}
}
