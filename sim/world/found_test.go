package world_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/sim/world"
)

// found are plans that once failed, as they were shrunk.
var found = []struct {
	what string
	plan world.Plan
}{
	{"an announcement that the broker lost never reached an agent", world.Plan{Seed: 384, Agents: 3, Participants: 2,
		Quorum: 1, Rounds: 3, Standardize: true, Faults: []world.Fault{
			{At: 14070 * time.Millisecond, Kind: world.Lossy, Party: -1, For: 3209 * time.Millisecond},
		}}},
	{"a line of the history that a killed process had written and not synced was lost in the next power cut",
		world.Plan{Seed: 5248, Method: "feddec, refuse_above, fedavgm, straggling", Agents: 3, Participants: 2,
			Quorum: 1, Rounds: 2, Faults: []world.Fault{
				{At: 5248 * time.Millisecond, Kind: world.Killed, Party: -1, For: 13562 * time.Millisecond, Ops: 25},
				{At: 22219 * time.Millisecond, Kind: world.PowerCut, Party: -1, For: 599 * time.Millisecond, Ops: 33},
			}}},
}

func TestFound(t *testing.T) {
	for _, f := range found {
		if r := world.Run(f.plan, world.Bugs{}, nil); r.Failure != "" {
			t.Errorf("%s: %s", f.what, r.Failure)
		}
	}
}
