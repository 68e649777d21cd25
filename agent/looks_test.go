package agent_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// growing is a data source with a settable number of rows, whose values are all zero.
type growing struct {
	atomic.Int64
	told  int64
	looks atomic.Int64
}

func (g *growing) OpenRows(data.RowQuery) data.QueriedRows { return g }
func (g *growing) Probe() error                            { return nil }
func (g *growing) Close() error                            { return nil }

func (g *growing) Changed() bool {
	g.looks.Add(1)
	return g.told != g.Load()
}

func (g *growing) Snapshot() (data.RowSnapshot, error) {
	g.told = g.Load()
	return data.RowSnapshot{Version: uint64(g.told),
		Rows: learner.NewSamples(2, make([]float32, 2*g.told), make([]float32, g.told))}, nil
}

// TestLooksForRows checks that the agent checks for new rows every five minutes while the next round waits for new
// rows, and soon after a round that has used the existing rows.
func TestLooksForRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newScene(t), new(growing)
		g.Store(5)
		s.cfg.TaskData.Source = g
		s.start()
		told := func() uint32 {
			all := s.heard(wire.TypeHello)
			h, err := wire.DecodeHello(all[len(all)-1].Body)
			if err != nil || !h.NewRows.IsKnown {
				t.Fatalf("%+v, error %v", h, err)
			}
			return h.NewRows.UnusedRows
		}
		a := s.training(taskOf("a"), 0, 0)
		a.MinNewRows = 9
		idle := a
		idle.Phase = wire.PhaseIdle
		s.announce(1, idle)
		wait(time.Minute) // With more than five rows the agent would not check.
		for _, rows := range []int64{7, 8} {
			g.Store(rows)
			before := g.looks.Load()
			wait(5 * time.Minute)
			if n := told(); n != uint32(rows) || g.looks.Load() != before+1 {
				t.Errorf("%d new rows of %d, after %d looks", n, rows, g.looks.Load()-before)
			}
		}
		s.invite(2, s.announce(2, a))
		wait(3*time.Second + time.Millisecond) // duration of the agent's local steps
		if n := len(s.heard(wire.TypeUpdate)); n == 0 {
			t.Fatal("there is no update")
		}
		g.Store(20)
		s.announce(3, idle)
		if n := told(); n != 8 {
			t.Fatalf("%d new rows, looked for twice in 5 s", n)
		}
		if wait(5 * time.Second); told() != 20 {
			t.Errorf("%d new rows, want those that have come since", told())
		}
	})
}

// TestRowsComeDuringRound checks that the agent reports rows that arrive during a round again after its update was
// used. The use of the update invalidates the earlier report.
func TestRowsComeDuringRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newScene(t), new(growing)
		g.Store(20)
		s.cfg.TaskData.Source, s.cfg.Training.DeclaredStepTime = g, 3*time.Second
		s.start()
		a := s.training(taskOf("a"), 0, 0)
		a.MinNewRows = 9
		s.invite(1, s.announce(1, a))
		wait(6 * time.Second) // after six of the nine seconds of local steps
		g.Store(35)
		a.Attempt = 2
		s.announce(1, a) // The announcement makes the agent check its data.
		if n := len(eventsOf[agentround.TaskFitnessChecked](s)); n != 2 {
			t.Fatalf("the data were held against the task %d times, want twice", n)
		}
		wait(6 * time.Second)
		_, u := s.update()
		s.direct(wire.TypeUpdateAccepted, 1, (&wire.UpdateAccepted{Update: u.PayloadManifest.Hash}).Body())
		a.Phase, a.LastEndedRound = wire.PhaseIdle, 1
		o := wire.RoundOutcome{Round: 1, UpdateFates: []wire.TaggedUpdateFate{{
			Tag: wire.UpdateTagOf(s.run, 1, "press", u.PayloadManifest.Hash), Fate: wire.FateAggregated}}}
		a.LastRoundOutcome = inline(o.Body())
		before := len(s.heard(wire.TypeHello))
		s.announce(2, a)
		wait(time.Second)
		all := s.heard(wire.TypeHello)
		if len(all) != before+1 {
			t.Fatalf("%d hellos, want one more than %d", len(all), before)
		}
		h, err := wire.DecodeHello(all[before].Body)
		if want := (wire.NewRowsReport{IsKnown: true, UnusedRows: 15, LastUsedRound: 1}); err != nil ||
			h.NewRows != want {
			t.Errorf("new rows %+v, want %+v, error %v", h.NewRows, want, err)
		}
	})
}
