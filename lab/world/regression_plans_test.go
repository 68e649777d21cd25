package world_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/world"
)

// found lists plans that failed in the past, after Shrink has reduced them.
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
	{"an agent that had missed the next leader's announcement sealed its hellos to the one before, and got no answer",
		world.Plan{Agents: 4, Participants: 3, Quorum: 2, Rounds: 2, Machines: 2, Faults: []world.Fault{
			{At: 45 * time.Second, Kind: world.Lossy, Party: -1, For: 50 * time.Second},
			{At: 46 * time.Second, Kind: world.Killed, Party: -1, For: 5 * time.Second},
		}}},
	{"an agent was not told what became of an update that it had offered before another attempt chose other uploaders",
		world.Plan{Seed: 4157, Method: "feddec, mixing at every third step, bfloat16", Agents: 5, Participants: 3,
			Quorum: 1, Rounds: 1, Predicts: true, Evaluates: 2, Machines: 3, Faults: []world.Fault{
				{At: 5330 * time.Millisecond, Kind: world.Cut, Party: 4, For: 20900 * time.Millisecond},
				{At: 11358 * time.Millisecond, Kind: world.EngineEnd, Party: -1, For: 16112 * time.Millisecond},
				{At: 43368 * time.Millisecond, Kind: world.PowerCut, Party: -1, For: 812 * time.Millisecond, Ops: 18},
			}}},
}

func TestFound(t *testing.T) {
	for _, f := range found {
		if r := world.Run(f.plan, world.Bugs{}, nil); r.Failure != "" {
			t.Errorf("%s: %s", f.what, r.Failure)
		}
	}
}
