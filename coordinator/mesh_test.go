package coordinator_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestEdgesAreMadeOnce checks that the edges between agents are computed again only after the set of agents has
// changed, and that closing a round does not wait for a slow computation.
func TestEdgesAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMixing(t, 4, 3, nil)
		f.cfg.Round.MaxAggregations, f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents = 6, 4, 4
		var made atomic.Int32
		edges := f.cfg.MakeEdges
		f.cfg.MakeEdges = func(agents []round.MixingAgent) (meshplan.MixingGraph, error) {
			made.Add(1)
			wait(time.Minute)
			return edges(agents)
		}
		began := time.Now()
		f.start()
		f.finished(time.Hour)
		if n, took := made.Load(), time.Since(began); n != 1 || took > 2*time.Minute {
			t.Errorf("edges were made %d times, and all took %v", n, took)
		}
		if told := events[meshplan.MeshComputed](f); len(told) != 6 || len(told[5].Edges) != 4 {
			t.Errorf("%d rounds were told of edges, want 6", len(told))
		}
	})
}

// TestEdgesAreMadeBesideTheRound checks that edges are computed during the round while agents connect and disconnect,
// so that the next round does not wait for a slow computation.
func TestEdgesAreMadeBesideTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMixing(t, 4, 3, nil)
		f.cfg.Round.MaxAggregations, f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents = 4, 4, 4
		f.cfg.Task.Training.StepTimeBudgetMillis, f.cfg.Task.Mixing.SnapshotWaitMillis = 200_000, 300
		for _, a := range f.agents {
			a.cfg.Training.DeclaredStepTime = 20 * time.Second
		}
		late := f.enrol("late")
		late.data, late.cfg.Training.DeclaredStepTime, late.cfg.Mesh = rowsOf(9, 30), 20*time.Second,
			f.agents[0].cfg.Mesh
		edges := f.cfg.MakeEdges
		f.cfg.MakeEdges = func(agents []round.MixingAgent) (meshplan.MixingGraph, error) {
			wait(time.Minute)
			return edges(agents)
		}
		opened, closed := map[wire.RoundID]time.Time{}, map[wire.RoundID]time.Time{}
		f.coord.moment = func(event any) {
			switch x := event.(type) {
			case round.RoundOpened:
				if opened[x.Round] = time.Now(); x.Round == 3 {
					late.start()
				} else if x.Round == 4 {
					late.stop()
				}
			case round.RoundClosed:
				closed[x.Round] = time.Now()
			}
		}
		f.start()
		f.finished(time.Hour)
		made := map[wire.RoundID]int{}
		for _, m := range events[meshplan.MeshComputed](f) {
			made[m.Round] = len(m.Edges)
		}
		for r, want := range map[wire.RoundID]int{3: 4, 4: 5, 5: 4} {
			if waited := opened[r].Sub(closed[r-1]); waited > time.Second || made[r] != want {
				t.Errorf("round %d has %d edges, want %d, and waited for %v", r, made[r], want, waited)
			}
		}
	})
}
