package coordinator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// crashRun runs three agents and kills one process at its n-th step, which is an event or a sent message. The process
// restarts with its state folder unchanged. crashRun returns the hash of the last model, and false if the process ended
// before its n-th step.
func crashRun(t *testing.T, victim, n int, hidden []uint32, spell string) (hash wire.Digest, killed bool) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.PauseBetweenRounds = 2, time.Minute
		if hidden != nil {
			f.cfg.Round.MaxAggregations, f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = 1, hidden, 0.01
		}
		p := f.coord
		if victim < len(f.agents) {
			p = f.agents[victim]
		}
		dead := make(chan string, 1)
		var gate sync.Mutex
		p.moment = func(m any) {
			gate.Lock()
			defer gate.Unlock()
			if n--; n == 0 {
				p.kill()
				dead <- fmt.Sprintf("%T", m)
			}
		}
		f.start()
		over := make(chan struct{})
		go func() {
			defer close(over)
			select {
			case at := <-dead:
				killed = true
				spell += " at " + at
				wait(2 * time.Second)
				p.again()
			case <-time.After(30 * time.Minute):
			}
		}()
		hash = f.finished(2 * time.Hour)
		<-over
		wait(time.Minute) // a process killed at the end writes the last history line again
		gate.Lock()
		n = 0 // kill the process only once
		gate.Unlock()
		f.checkOnce(spell)
		if victim == len(f.agents) {
			f.checkSpools(spell)
			f.checkHistory(spell)
			f.checkCounts(spell)
		}
	})
	return hash, killed
}

// checkOnce checks that no round was abandoned, no update was accepted twice, and no agent trained twice for a round
// unless its work was lost.
func (f *federation) checkOnce(spell string) {
	f.t.Helper()
	type part struct {
		who wire.AgentID
		r   wire.RoundID
	}
	trained, accepted := map[part]int{}, map[part]int{}
	for _, a := range f.agents {
		for _, x := range events[training.LocalTrainingFinished](f, a.id) {
			trained[part{a.id, x.Round}]++
		}
	}
	for _, x := range events[round.UpdateAccepted](f) {
		accepted[part{x.Agent, x.Round}]++
	}
	for part, n := range trained {
		if n > 1 {
			f.t.Errorf("%s: %s trained %d times for round %d", spell, part.who, n, part.r)
		}
	}
	for part, n := range accepted {
		if n > 1 {
			f.t.Errorf("%s: the update of %s for round %d was accepted %d times", spell, part.who, part.r, n)
		}
	}
	if gone := events[round.RoundAbandoned](f); len(gone) > 0 {
		f.t.Errorf("%s: abandoned: %+v", spell, gone)
	}
	for _, no := range events[round.UpdateRefused](f) {
		if no.Reason != wire.RefuseLate { // the update was accepted, the answer was lost, and the round has ended
			f.t.Errorf("%s: refused: %+v", spell, no)
		}
	}
}

// checkSpools checks that no spool of a finished round remains.
func (f *federation) checkSpools(spell string) {
	f.t.Helper()
	f.coord.stop()
	f.coord.start() // a spool whose removal was interrupted is removed at the next start
	entries, err := os.ReadDir(f.coord.path("spool"))
	if err != nil || len(entries) > 0 {
		f.t.Errorf("%s: %v; left behind: %v", spell, err, entries)
	}
}

// checkHistory checks that the history has one line per round, in order, with time, run and, for a training round, the
// risk.
func (f *federation) checkHistory(spell string) {
	f.t.Helper()
	text, err := os.ReadFile(f.coord.path("history.jsonl"))
	if err != nil {
		f.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		var h struct {
			Time          time.Time
			Run           wire.RunID
			Round         int
			Kind, Outcome string
			Risk          *float64
		}
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			f.t.Fatal(err)
		}
		if h.Round != i+1 || h.Time.IsZero() || h.Run == 0 || h.Outcome != "closed" ||
			(h.Risk == nil) == (h.Kind == "training") {
			f.t.Errorf("%s: line %d of the history is %s", spell, i+1, line)
		}
	}
	if want := f.cfg.Round.MaxAggregations + 1; len(lines) != want {
		f.t.Errorf("%s: %d lines of history, want %d:\n%s", spell, len(lines), want, text)
	}
}

// checkCounts checks that no agent counts an update as lost although the update is in the model.
func (f *federation) checkCounts(spell string) {
	f.t.Helper()
	for _, x := range events[agentround.WorkEnded](f) {
		if x.Result != agentround.WorkAccepted {
			f.t.Errorf("%s: an agent counts its work in round %d as %s", spell, x.Round, x.Result)
		}
	}
}

// killEverywhere kills a process at each of its steps (events and sent messages), or at every stride-th step.
func killEverywhere(t *testing.T, victim, stride int, hidden ...uint32) {
	t.Parallel()
	if testing.Short() {
		stride *= 31
	}
	want, killed := crashRun(t, victim, -1, hidden, "undisturbed")
	if killed {
		t.Fatal("killed at no moment")
	}
	n := 1
	for ; ; n += stride {
		spell := fmt.Sprintf("killed at moment %d", n)
		hash, killed := crashRun(t, victim, n, hidden, spell)
		if !killed {
			break
		}
		if hash != want {
			t.Errorf("%s: model %x, want %x", spell, hash[:4], want[:4])
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if n < 20 {
		t.Errorf("the run had %d moments only", n)
	}
}

// TestCoordinatorKilled kills the coordinator at each step of a run, before and after each message. The run must end
// with the same model, and no work may be done twice.
func TestCoordinatorKilled(t *testing.T) { killEverywhere(t, 3, 1) }

// TestAgentKilled kills an agent at each step: while it downloads, trains, uploads and waits.
func TestAgentKilled(t *testing.T) { killEverywhere(t, 1, 1) }

// TestCoordinatorKilledInTransfer kills the coordinator during transfers of models and updates of 70 kB, which are
// received in memory.
func TestCoordinatorKilledInTransfer(t *testing.T) { killEverywhere(t, 3, 7, 128, 128) }

func TestAgentKilledInTransfer(t *testing.T) { killEverywhere(t, 1, 5, 128, 128) }

// TestCoordinatorKilledInLargeTransfer kills the coordinator during transfers of 1.06 MB, which are received in files.
func TestCoordinatorKilledInLargeTransfer(t *testing.T) { killEverywhere(t, 3, 19, 512, 512) }

func TestAgentKilledInLargeTransfer(t *testing.T) { killEverywhere(t, 1, 11, 512, 512) }

// TestKilledAfterTheFold kills the coordinator between storing a model and recording the end of the round in the
// journal. The restarted coordinator opens the round again, with the same updates and another one that arrived
// meanwhile. No model may be announced before the journal refers to it.
func TestKilledAfterTheFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.Quorum = false, 1, 2
		f.cfg.Task.Training.StepSize = 1e-5
		slowest, dead := f.agents[2], make(chan struct{}, 2)
		die := func(p *process, at func(m any) bool) {
			p.moment = func(m any) {
				if at(m) {
					p.moment = func(any) {}
					p.kill()
					dead <- struct{}{}
				}
			}
		}
		die(slowest, func(m any) bool { _, is := m.(training.LocalTrainingFinished); return is })
		die(f.coord, func(m any) bool { _, is := m.(round.RoundClosed); return is })
		f.start()
		<-dead
		<-dead
		wait(time.Second)
		slowest.again()
		wait(time.Second)
		f.coord.again()
		f.finished(time.Hour)
		closed, models := events[round.RoundClosed](f), events[aggregation.ModelReady](f)
		if len(closed) != 2 || closed[0].AcceptedUpdates != 2 || closed[1].AcceptedUpdates != 3 || len(models) != 2 ||
			models[0].Hash == models[1].Hash {
			t.Errorf("closed %+v: want two updates before the kill, and three after it", closed)
		}
		for _, a := range f.agents {
			if n := len(events[training.LocalTrainingFinished](f, a.id)); n != 1 {
				t.Errorf("%s trained %d times", a.id, n)
			}
		}
	})
}
