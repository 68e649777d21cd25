package coordinator_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// endlessSite is a federation of five agents that train in endless blocks (training that continues across rounds).
// Every two agents are neighbours. The local broker between the agents loses and delays messages.
type endlessSite struct {
	*federation
	site *memory.Broker
	cut  atomic.Bool // true while the local broker delivers no messages
}

func newEndlessSite(t *testing.T) *endlessSite {
	rng, e := rand.New(rand.NewPCG(3, 3)), &endlessSite{}
	e.site = memory.New(memory.Options{
		Delay: func(string) time.Duration { return time.Duration(rng.IntN(20)) * time.Millisecond },
		Drop:  func(string) bool { return e.cut.Load() || rng.Float64() < 0.1 },
	})
	e.federation = newMixing(t, 5, 2, e.site)
	e.cfg.Task.Mixing.HasEndlessBlocks, e.cfg.Task.Mixing.SnapshotWaitMillis = true, 300
	// every two agents are neighbours
	e.cfg.MakeEdges = func(agents []round.MixingAgent) (m meshplan.MixingGraph, err error) {
		for i, a := range agents {
			for _, b := range agents[i+1:] {
				m.Edges = append(m.Edges, round.MixingEdge{A: a.ID, B: b.ID, MixingWeight: 0.2})
			}
		}
		return m, nil
	}
	r := &e.cfg.Round
	r.MaxAggregations, r.PauseBetweenRounds, r.RoundTimeout = 0, 20*time.Second, 3*time.Minute
	r.Gather = round.GatherConfig{MinAgents: 4, WindowLength: 30 * time.Second, HelloSpread: time.Second}
	for _, a := range e.agents {
		a.cfg.Training.DeclaredStepTime = 100 * time.Millisecond
	}
	return e
}

func (e *endlessSite) models() int { return len(events[aggregation.ModelReady](e.federation)) }

// awaitModels waits until the coordinator has stored n more models.
func (e *endlessSite) awaitModels(n int) {
	want := e.models() + n
	e.until(time.Hour, fmt.Sprintf("%d averages more", n), func() bool { return e.models() >= want })
}

// blocks returns the endless blocks that the given agents began. Without arguments it returns the blocks of all agents.
func (e *endlessSite) blocks(of ...wire.AgentID) []training.EndlessBlockBegan {
	return events[training.EndlessBlockBegan](e.federation, of...)
}

func (e *endlessSite) killAgent(a *process) {
	a.kill()
	e.site.Disconnect(e.topics.ClientID(a.id))
}

// checkLearning checks that the risk has fallen. It ignores rounds with an unknown risk, which a killed coordinator
// leaves behind.
func (e *endlessSite) checkLearning(after string) {
	all := slices.DeleteFunc(events[aggregation.ModelReady](e.federation),
		func(m aggregation.ModelReady) bool { return math.IsNaN(m.MeanReportedRisk) })
	if first, last := all[0].MeanReportedRisk, all[len(all)-1].MeanReportedRisk; !(last < first/2) {
		e.t.Errorf("after %s: risk %v → %v", after, first, last)
	}
}

// TestEndlessBlocks checks that agents continue to mix across rounds while the coordinator is offline for a long time.
// Meanwhile one device is killed and resumes with its neighbours' parameters, and the local broker fails for a minute.
// The restarted coordinator averages the agents' current parameters.
func TestEndlessBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndlessSite(t)
		e.start()
		e.awaitModels(3)
		began := e.blocks()
		for _, b := range began {
			if b.Origin != training.BlockFromModel || b.EdgesMadeForRound != began[0].EdgesMadeForRound ||
				b.Neighbors != 4 {
				t.Errorf("%+v", b)
			}
		}
		if len(began) != 5 {
			t.Errorf("%d blocks began, want one an agent", len(began))
		}

		e.coord.kill()
		wait(time.Minute)
		killed := e.agents[2]
		e.killAgent(killed)
		wait(time.Minute)
		killed.again()
		wait(time.Minute)
		e.cut.Store(true) // until every agent considers all its neighbours unreachable
		wait(time.Minute)
		e.cut.Store(false)
		alone := time.Hour
		if testing.Short() {
			alone = 10 * time.Minute
		}
		wait(alone)
		if b := e.blocks(killed.id); len(b) != 2 || b[1].Origin != training.BlockFromNeighbor ||
			b[1].EdgesMadeForRound != began[0].EdgesMadeForRound {
			t.Errorf("after its restart the agent began %+v", b)
		}
		e.coord.again()
		e.awaitModels(4)
		mixedBy := func(a *process) []training.LocalTrainingFinished {
			return events[training.LocalTrainingFinished](e.federation, a.id)
		}
		e.until(time.Hour, "a result of each agent", func() bool { // a round draws two of the five agents
			return !slices.ContainsFunc(e.agents, func(a *process) bool { return len(mixedBy(a)) == 0 })
		})
		for _, a := range e.agents {
			mixed := mixedBy(a)
			if s := mixed[len(mixed)-1].MixingStats; s == nil || s.AppliedFlows == 0 {
				t.Errorf("the last mixing of %s was %+v", a.id, s)
			}
		}
		if meshes := events[meshplan.MeshComputed](e.federation); len(meshes) != 1 {
			t.Errorf("edges were made %d times, though all agents were in the block", len(meshes))
		}
		e.checkLearning("the absence of the coordinator")
	})
}

// TestEndlessBlocksAfterLossOfPower cuts the power of all devices and the coordinator at once. They must continue from
// their disks.
func TestEndlessBlocksAfterLossOfPower(t *testing.T) {
	if testing.Short() {
		t.Skip("ten minutes of five agents; TestEndlessBlocks kills one")
	}
	synctest.Test(t, func(t *testing.T) {
		e := newEndlessSite(t)
		e.start()
		e.awaitModels(5)
		e.coord.kill()
		for _, a := range e.agents {
			e.killAgent(a)
		}
		for _, a := range e.agents {
			a.again()
		}
		wait(10 * time.Minute)
		disk := 0
		for _, a := range e.agents {
			b := e.blocks(a.id)
			switch b[len(b)-1].Origin {
			case training.BlockFromDisk:
				disk++
			case training.BlockFromNeighbor:
			default:
				t.Errorf("%s began with %s", a.id, b[len(b)-1].Origin)
			}
		}
		if disk == 0 {
			t.Error("nobody began with what its disk has")
		}
		e.coord.again()
		e.awaitModels(2)
		e.checkLearning("the loss of power")
	})
}

// TestEndlessBlockUnderAnotherTask checks that a new task ends an endless block, and that the next block continues from
// the current model.
func TestEndlessBlockUnderAnotherTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndlessSite(t)
		e.cfg.TaskVersion = 1
		e.start()
		e.awaitModels(3)
		e.endBetween(false)
		began, before := len(e.blocks()), present(t, e.federation)
		e.cfg.TaskVersion, e.cfg.Task.Mixing.SnapshotWaitMillis, e.cfg.Task.Training.BatchSize = 2, 500, 2
		e.coord.start()
		e.awaitModels(4)
		fresh := e.blocks()[began:]
		if len(fresh) != 5 || fresh[0].EdgesMadeForRound <= before.MixingBlockRound {
			t.Errorf("%d blocks began, the first %+v after block %d", len(fresh), fresh[0], before.MixingBlockRound)
		}
		if r := present(t,
			e.federation); r.Run != before.Run || r.Plan.BaseModelVersion < before.Plan.BaseModelVersion+3 {
			t.Errorf("run %d at model %d, then %d at %d", before.Run, before.Plan.BaseModelVersion, r.Run,
				r.Plan.BaseModelVersion)
		}
		e.checkLearning("another task")
	})
}
