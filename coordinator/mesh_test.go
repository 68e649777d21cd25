package coordinator_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/round"
)

// TestEdgesAreMadeOnce: edges that take a minute are made when the agents have changed, and a round that closes does
// not wait for them.
func TestEdgesAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMixing(t, 4, 3, nil)
		f.cfg.Round.Rounds, f.cfg.Round.Gather.Target, f.cfg.Round.Gather.Minimum = 6, 4, 4
		var made atomic.Int32
		edges := f.cfg.Edges
		f.cfg.Edges = func(agents []round.MeshAgent) (coordinator.Mesh, error) {
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
		if told := facts[coordinator.MeshMade](f); len(told) != 6 || len(told[5].Edges) != 4 {
			t.Errorf("%d rounds were told of edges, want 6", len(told))
		}
	})
}
