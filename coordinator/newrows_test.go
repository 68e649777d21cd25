package coordinator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/schedule"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRoundsWaitForNewRows checks that rounds continue while enough agents have rows that were not used for training
// yet. Then rounds pause until the data files have grown, even after restarts. A waiting agent sends at most one hello
// in five minutes.
func TestRoundsWaitForNewRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations = 0
		f.cfg.Round.Schedule.NewRows = schedule.NewRowsCondition{MinAgents: 2, MinRowsPerAgent: 10}
		var files []*grown
		for i, a := range f.agents {
			lines := strings.Split(string(rowsOf(uint64(i), 100)), "\n")
			g := &grown{path: filepath.Join(t.TempDir(), "rows.csv"), rest: lines[21:]}
			must(t, os.WriteFile(g.path, []byte(strings.Join(lines[:21], "\n")+"\n"), 0o600))
			a.file, files = data.Config{CSVPath: g.path}, append(files, g)
		}
		grow := func(i, lines int) {
			for range lines {
				files[i].grow(t)
			}
		}
		models := func() int { return len(events[aggregation.ModelReady](f)) }
		s := newStranger(f)
		f.start()
		for step, c := range []struct {
			do   func()
			want int
		}{
			{func() {}, 1},
			{func() { grow(0, 12); grow(1, 9) }, 1}, // one agent with new rows is not enough for a round
			{func() { f.coord.kill(); f.coord.start() }, 1},
			{func() { grow(1, 3) }, 2},
			// after a restart, all rows of the agent count as new
			{func() { f.agents[0].stop(); f.agents[0].start() }, 2},
			{func() { f.coord.stop(); f.coord.start() }, 2},
			{func() { grow(2, 10) }, 3},
		} {
			c.do()
			s.listen()
			before := len(s.heard)
			wait(2 * time.Hour)
			s.listen()
			if models() != c.want {
				t.Fatalf("step %d: %d models, want %d; the last events:\n%s", step, models(), c.want, f.tail(30))
			}
			hellos := map[wire.AgentID]int{}
			for _, m := range s.heard[before:] {
				if e, err := f.reveal(m); err == nil && e.Type == wire.TypeHello {
					hellos[e.Sender]++
				}
			}
			for agent, n := range hellos {
				if n > 2*60/5+5 {
					t.Errorf("step %d: %s says %d hellos in two hours", step, agent, n)
				}
			}
			if w := events[round.ScheduleWait](f); len(w) == 0 || w[len(w)-1].Reason != round.WaitForNewRows {
				t.Errorf("step %d: the schedule waits for %+v", step, w)
			}
		}
	})
}
