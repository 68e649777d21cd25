package round_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestFederation lives through faults with many seeds. When the faults are
// over, a run with a last round must reach it; one without end must count
// every fit agent again, and close its rounds.
func TestFederation(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	var closed, abandoned int
	for seed := range seeds {
		w := liveThrough(seed)
		if problem := w.report(); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		closed, abandoned = closed+w.checks.closed, abandoned+w.checks.abandoned
	}
	if closed < 10*int(seeds) || abandoned < int(seeds) {
		t.Errorf("%d rounds closed and %d abandoned: too little happened", closed, abandoned)
	}
}

// TestFederationRepeats lives through the same faults twice.
func TestFederationRepeats(t *testing.T) {
	for seed := range uint64(20) {
		a, b := liveThrough(seed), liveThrough(seed)
		if a.history.Sum64() != b.history.Sum64() {
			t.Fatalf("seed %d: two runs have two histories", seed)
		}
	}
	if liveThrough(1).history.Sum64() == liveThrough(2).history.Sum64() {
		t.Fatal("two seeds have one history")
	}
}

func liveThrough(seed uint64) *world {
	w := newWorld(seed)
	if w.cfg.Rounds > 0 {
		w.run(2*time.Hour, func() bool { return w.checks.finished && !w.troubled() })
		if !w.checks.finished && len(w.problems) == 0 {
			w.fail("not finished: %d rounds closed, %d abandoned", w.checks.closed, w.checks.abandoned)
		}
		w.afterTheEnd()
		return w
	}
	w.run(45*time.Minute, func() bool { return false })
	if len(w.problems) == 0 {
		w.settled(w.calm.Add(30 * time.Minute))
	}
	return w
}

// afterTheEnd checks that a coordinator that starts again is still believed to
// have finished.
func (w *world) afterTheEnd() {
	w.coord.crash()
	later := w.now.Add(10 * time.Minute)
	w.run(3*time.Hour, func() bool { return w.now.After(later) })
	for _, a := range w.agents {
		if last := w.checks.order; a.obeyed.Order != last || last.Phase != wire.PhaseFinished {
			w.fail("%s obeys %s, the last was %s", a.id, a.obeyed.Order, last)
		}
	}
}

// settled checks that long after the last fault everything is as it should be.
func (w *world) settled(since time.Time) {
	c := &w.checks
	fit := 0
	for _, a := range w.agents {
		if a.fits(name("training")) {
			fit++
		}
	}
	switch opened := c.lastOpened; {
	case c.openedAt.Before(since):
		w.fail("no round was opened in the last quarter of an hour")
	case opened.Kind != wire.KindTraining || opened.Agents != fit:
		w.fail("round %d: %s with %d agents, want training with %d", opened.Round, opened.Kind, opened.Agents, fit)
	case c.abandonedAt.After(since):
		w.fail("a round was abandoned long after the last fault")
	}
}

func BenchmarkFederation(b *testing.B) {
	for i := range b.N {
		if w := liveThrough(uint64(i)); len(w.problems) > 0 {
			b.Fatal(fmt.Sprint("seed ", i, ": ", w.problems))
		}
	}
}
