package round_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestFederation lives through faults with many seeds. When the faults are
// over, a run with a last round must reach it; one without end must count
// every fit agent again, and close its rounds.
func TestFederation(t *testing.T) { liveThroughAll(t, 0, 80) }

func liveThroughAll(t *testing.T, from, to uint64) {
	closed, abandoned, replaced := 0, 0, 0
	for seed := from; seed < to; seed++ {
		w := liveThrough(seed)
		if problem := w.report(); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		closed, abandoned, replaced = closed+w.checks.closed, abandoned+w.checks.abandoned, replaced+w.checks.replaced
	}
	if replaced < int(to-from)/10 {
		t.Errorf("%d uploaders were replaced: too little happened", replaced)
	}
	if seeds := int(to - from); closed < 10*seeds || abandoned < seeds {
		t.Errorf("%d rounds closed and %d abandoned with %d seeds: too little happened", closed, abandoned, seeds)
	}
}

// TestFederationRepeats lives through the same faults twice.
func TestFederationRepeats(t *testing.T) {
	for seed := range uint64(6) {
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
		w.run(2*time.Hour, func() bool { return w.finished() && !w.troubled() })
		if !w.finished() && len(w.problems) == 0 {
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

// finished goes by what is on disk: a crash may swallow the fact.
func (w *world) finished() bool { return w.coord.record.Phase == round.CoordinatorFinished }

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
