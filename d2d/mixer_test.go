package d2d

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// ring returns Metropolis weights for a ring in which each of n nodes is joined with the next two nodes.
func ring(n int) map[[2]int]float64 {
	w := map[[2]int]float64{}
	for i := range n {
		for _, j := range []int{(i + 1) % n, (i + 2) % n} {
			w[[2]int{min(i, j), max(i, j)}] = 0.2
		}
	}
	return w
}

// TestLockStep checks that mixing by messages, without loss and deadlines, is bitwise equal to a simulation in which
// all nodes mix at the same time.
func TestLockStep(t *testing.T) {
	const n, d, steps = 20, 7, 50
	weights := ring(n)
	f := fate{delay: 30 * time.Millisecond, compute: 20 * time.Millisecond, steps: steps, drain: time.Second}
	w := newLinks[float32](t, 3, n, d, weights, f)
	var edges [][2]int
	for e := range weights {
		edges = append(edges, e)
	}
	slices.SortFunc(edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	x, y := make([][]float32, n), make([][]float32, n)
	for i := range n {
		x[i], y[i] = slices.Clone(w.nodes[i].x), make([]float32, d)
	}
	for range steps {
		for i := range n {
			copy(y[i], x[i])
			for j := range n {
				if c, ok := weights[[2]int{min(i, j), max(i, j)}]; ok && i != j {
					AddParameterFlow(y[i], float32(c), x[i], x[j])
				}
			}
		}
		x, y = y, x
	}
	w.rest()
	for i, a := range w.nodes {
		if !a.done {
			t.Fatalf("%s is not done", a.cfg.Self)
		}
		if !slices.Equal(a.x, x[i]) {
			t.Errorf("%s: %v, want %v", a.cfg.Self, a.x, x[i])
		}
		if s := a.ex.Stats(); s.LateFlows != 0 || s.SkippedSnapshots != 0 || s.UnreconciledEdges != 0 ||
			s.AppliedFlows != 4*steps {
			t.Errorf("%s: %+v", a.cfg.Self, s)
		}
	}
}

// TestConservation checks that the sum of the parameters over the running agents is conserved. The simulation loses,
// duplicates, delays and reorders messages, and stops one agent. Messages are encrypted or not, exact or quantised, and
// in one part or in several parts.
func TestConservation(t *testing.T) {
	f := fate{loss: 0.2, dup: 0.05, delay: 120 * time.Millisecond, compute: 20 * time.Millisecond, gradient: 0.1,
		wait: 100 * time.Millisecond, steps: 300, drain: 5 * time.Second}
	for name, change := range map[string]func(f *fate){
		"open":     func(f *fate) { f.open = true },
		"kill":     func(f *fate) { f.open, f.killAt = true, 100 },
		"sealed":   func(f *fate) { f.steps, f.killAt = 60, 30 },
		"bfloat16": func(f *fate) { f.open, f.steps, f.codec = true, 60, spec.CodecBFloat16 },
		"int8":     func(f *fate) { f.steps, f.codec = 60, spec.CodecInt8 },
		"int4":     func(f *fate) { f.steps, f.codec = 60, spec.CodecInt4 },
	} {
		if name == "kill" && testing.Short() {
			continue // This case equals the case "sealed", but takes more steps.
		}
		t.Run(name, func(t *testing.T) {
			f := f
			change(&f)
			conserve(t, newLinks[float64](t, 4, 20, 3, ring(20), f), 1e-12)
		})
	}
	f.steps = 100
	t.Run("float32", func(t *testing.T) { conserve(t, newLinks[float32](t, 4, 20, 3, ring(20), f), 1e-5) })
	f.loss, f.steps, f.drain = 0.1, 12, 10*time.Second
	t.Run("parts", func(t *testing.T) { conserve(t, newLinks[float32](t, 4, 6, 13_000, ring(6), f), 1e-5) })
}

func conserve[T wire.Float](t *testing.T, w *links[T], most float64) {
	for range 50 { // Check the sum in the middle of blocks too.
		w.run(4000)
		if d := w.drift(); d > most {
			t.Fatalf("at %v: drift %g", w.now.Sub(time.Unix(0, 0)), d)
		}
	}
	w.rest()
	if d := w.drift(); d > most {
		t.Errorf("at the end: drift %g", d)
	}
	late, skipped := uint64(0), uint64(0)
	for i, a := range w.nodes {
		s := a.ex.Stats()
		late, skipped = late+s.LateFlows, skipped+s.SkippedSnapshots
		if a.dead {
			continue
		}
		if !a.done {
			t.Errorf("%s is not done", a.cfg.Self)
		}
		if far := i > 2 && i < 18; s.UnreconciledEdges > 0 && (far || w.fate.killAt == 0) {
			t.Errorf("%s: %d edges unreconciled", a.cfg.Self, s.UnreconciledEdges)
		}
		if a.mostKept > 2*len(a.cfg.Neighbors) {
			t.Errorf("%s kept %d sealed snapshots", a.cfg.Self, a.mostKept)
		}
	}
	if late == 0 || skipped == 0 {
		t.Errorf("%d late flows and %d skipped steps: nothing was tried", late, skipped)
	}
}

// TestContraction checks that the differences between the agents' parameters shrink even if every message is late or
// many messages are lost.
func TestContraction(t *testing.T) {
	for name, f := range map[string]fate{
		"late": {delay: 200 * time.Millisecond, late: true},
		"loss": {loss: 0.3, delay: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			f.wait, f.compute, f.steps, f.drain = 100*time.Millisecond, time.Millisecond, 300, 5*time.Second
			f.open = true
			w := newLinks[float64](t, 9, 20, 3, ring(20), f)
			before := w.spread()
			w.rest()
			if after := w.spread(); after > 1e-3*before {
				t.Errorf("spread %g → %g", before, after)
			}
			if d := w.drift(); d > 1e-12 {
				t.Errorf("drift %g", d)
			}
		})
	}
}

// TestEndless stops and restarts an agent in an endless block. It checks that the restarted agent begins from its
// neighbours' parameters, that the agent's edges are reset, and that the neighbours accept the agent's new keys.
func TestEndless(t *testing.T) {
	for _, open := range []bool{false, true} {
		f := fate{loss: 0.1, dup: 0.05, delay: 60 * time.Millisecond, compute: 10 * time.Millisecond,
			wait: 50 * time.Millisecond, killAt: 50, restart: 2 * time.Second, open: open}
		w := newLinks[float64](t, 3, 12, 3, ring(12), f)
		before := w.spread()
		w.run(60_000)
		back := w.nodes[0]
		if s := back.ex.Stats(); back.cfg.Boot != 2 || s.AppliedFlows < 100 || !s.JoinedFromSnapshots {
			t.Errorf("open %v: node 0 is at boot %d: %+v", open, back.cfg.Boot, s)
		}
		resets := uint64(0)
		for _, a := range w.nodes[1:] {
			resets += a.ex.Stats().EdgeResets
		}
		if resets != 4 {
			t.Errorf("open %v: %d resets, want one for each neighbour", open, resets)
		}
		if math.Abs(back.x[0]) > 10 {
			t.Errorf("open %v: the mean is %g: node 0 began with what it had", open, back.x[0])
		}
		if after := w.spread(); after > 1e-6*before {
			t.Errorf("open %v: spread %g → %g", open, before, after)
		}
		if d := w.drift(); d > 1e-9 {
			t.Errorf("open %v: drift %g", open, d)
		}
	}
}

// TestSlowNeighbor checks that a step waits for a silent neighbour until the deadline. After MaxSilentWaits such waits,
// steps must not wait for the neighbour until a message from it arrives.
func TestSlowNeighbor(t *testing.T) {
	now := time.Unix(0, 0)
	x := []float64{1}
	m := newMixer(MixingConfig[float64]{Boot: 1,
		Neighbors:       []Neighbor{{ID: "b", MixingWeight: 0.5, Boot: 1}, {ID: "c", MixingWeight: 0.25, Boot: 1}},
		SnapshotTimeout: time.Second,
		MaxSilentWaits:  2,
		RepeatInterval:  time.Hour, BlockSteps: 10}, x)
	step := func(ev Event) []Effect { return m.Step(now, ev) }
	from := func(id wire.AgentID) messageSender { return messageSender{id, 1, 1} }
	waits := func() (n int) {
		for step(LocalStepTaken{}); m.state == stateWaiting; step(Tick{}) {
			n++
			now, _ = m.Deadline()
		}
		return n
	}
	step(Start{})
	for _, want := range []int{1, 1, 0, 0} {
		step(snapshotReceived[float64]{from("b"), m.edgeToNeighbor("b").seq + 1, []float64{3}})
		if n := waits(); n != want {
			t.Fatalf("waited %d times at step %d, want %d", n, m.step-1, want)
		}
	}
	if x[0] != 2.875 { // x is the result of four flows ½(3 − x) from the neighbour b
		t.Errorf("x = %v", x)
	}
	step(snapshotReceived[float64]{from("c"), 1, []float64{5}})
	step(snapshotReceived[float64]{from("b"), 5, []float64{3}})
	waits()
	if want := 2.875 + 0.5*(3-2.875) + 0.25*(5-1); x[0] != want {
		t.Errorf("x = %v, want %v", x, want)
	}
	if s := m.Stats(); s.TimedOutWaits != 2 || s.LateFlows != 1 || s.SkippedSnapshots != 4 {
		t.Errorf("%+v", s)
	}
	step(snapshotReceived[float64]{from("b"), 6, []float64{3}})
	if n := waits(); n != 1 {
		t.Errorf("waited %d times for one that was heard again", n)
	}
}

// TestDrainWaitsForTheOtherEnd ends a block on an edge whose flow was applied only at this end. The block must end when
// the other end has applied the flow too. If the deadline passes before that, the edge must be reported as
// unreconciled.
func TestDrainWaitsForTheOtherEnd(t *testing.T) {
	for _, lost := range []bool{false, true} {
		now, b := time.Unix(0, 0), messageSender{"b", 1, 1}
		m := newMixer(MixingConfig[float64]{Boot: 1, Neighbors: []Neighbor{{ID: "b", MixingWeight: 0.5, Boot: 1}},
			BlockSteps:      1,
			SnapshotTimeout: time.Second, MaxSilentWaits: 1, RepeatInterval: time.Second, DrainTimeout: time.Minute},
			[]float64{1})
		done := func(ev Event) bool {
			return slices.ContainsFunc(m.Step(now, ev), func(e Effect) bool { _, is := e.(mixingEnded); return is })
		}
		done(Start{})
		done(LocalStepTaken{})
		if done(snapshotReceived[float64]{b, 1, []float64{3}}) || m.Stats().AppliedFlows != 1 {
			t.Fatalf("lost %v: %+v", lost, m.Stats())
		}
		if done(neighborFinished{Sender: b, LastSeq: 1, AppliedFlowSeq: 0}) {
			t.Errorf("lost %v: done before the other end has applied the flow", lost)
		}
		last := Event(neighborFinished{Sender: b, LastSeq: 1, AppliedFlowSeq: 1})
		want := uint64(0)
		if lost {
			last, want, now = Tick{}, 1, now.Add(2*time.Minute)
		}
		if !done(last) || m.Stats().UnreconciledEdges != want {
			t.Errorf("lost %v: %+v, want an end and %d unreconciled", lost, m.Stats(), want)
		}
	}
}

// TestIgnored checks that a mixer ignores invalid messages and counts the correct reason.
func TestIgnored(t *testing.T) {
	m := newMixer(MixingConfig[float64]{Boot: 7, Neighbors: []Neighbor{{ID: "b", MixingWeight: 0.5, Boot: 3}},
		BlockSteps: 2, MaxSilentWaits: 1,
		RepeatInterval: time.Second}, []float64{1, 2})
	m.Step(time.Time{}, Start{})
	ok := []float64{0, 0}
	for _, tt := range []struct {
		name string
		ev   Event
		why  IgnoreReason
	}{
		{"stranger", snapshotReceived[float64]{messageSender{"z", 3, 7}, 1, ok}, IgnoreNotNeighbor},
		{"a stranger's greeting", neighborGreeted{messageSender{"a", 3, 7}}, IgnoreNotNeighbor},
		{"older start", snapshotReceived[float64]{messageSender{"b", 2, 7}, 1, ok}, IgnoreOtherBoot},
		{"newer start", snapshotReceived[float64]{messageSender{"b", 4, 7}, 1, ok}, IgnoreOtherBoot},
		{"for another start", snapshotReceived[float64]{messageSender{"b", 3, 6}, 1, ok}, IgnoreOtherBoot},
		{"dimension", snapshotReceived[float64]{messageSender{"b", 3, 7}, 1, ok[:1]}, IgnoreWrongDimension},
		{"NaN", snapshotReceived[float64]{messageSender{"b", 3, 7}, 1, []float64{0, math.NaN()}}, IgnoreNotFinite},
		{"ahead", snapshotReceived[float64]{messageSender{"b", 3, 7}, 2, ok}, IgnoreSequenceAhead},
		{"zero", snapshotReceived[float64]{messageSender{"b", 3, 7}, 0, ok}, IgnoreDuplicate},
	} {
		before := m.Stats().IgnoredMessagesByReason
		if got := m.Step(time.Time{}, tt.ev); len(got) != 0 {
			t.Errorf("%s: %v", tt.name, got)
		}
		want := before
		want[tt.why]++
		if got := m.Stats().IgnoredMessagesByReason; got != want {
			t.Errorf("%s: ignored %v, want %v", tt.name, got, want)
		}
	}
	m.Step(time.Time{}, snapshotReceived[float64]{messageSender{"b", 3, 7}, 1, ok})
	m.Step(time.Time{}, snapshotReceived[float64]{messageSender{"b", 3, 7}, 1, ok})
	if got := m.Stats().IgnoredMessagesByReason[IgnoreDuplicate]; got != 2 {
		t.Errorf("%d duplicates", got)
	}
}

// TestBeginsWithTheMedian checks that an agent that returns to a block begins near most of its neighbours' parameters,
// whatever a single neighbour sends.
func TestBeginsWithTheMedian(t *testing.T) {
	for _, tt := range []struct {
		said []float64 // snapshot that each neighbour sends; NaN means that it sends none
		want float64
	}{
		{[]float64{1, 1.2, 1e30}, 1.2},
		{[]float64{-1e30, 1.2, 1.1}, 1.1},
		{[]float64{1, 1.5, math.MaxFloat64, 2}, 1.75},
		{[]float64{math.MaxFloat64, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
		{[]float64{1, 1e30, 1.2, math.NaN()}, 1.2},
		{[]float64{1, 1e30, math.NaN()}, 7}, // Too few snapshots arrive, so the agent keeps its own parameters.
		{[]float64{1e30, 1e30}, 7},
	} {
		cfg := MixingConfig[float64]{Boot: 2, SnapshotTimeout: time.Second, MaxSilentWaits: 3,
			RepeatInterval: time.Second,
			JoinTimeout:    time.Minute}
		for k := range tt.said {
			cfg.Neighbors = append(cfg.Neighbors, Neighbor{ID: agentID(k), MixingWeight: 0.1, Boot: 1})
		}
		x := []float64{7}
		m := newMixer(cfg, x)
		m.Step(time.Unix(0, 0), Start{})
		for k, v := range tt.said {
			if !math.IsNaN(v) {
				m.Step(time.Unix(0, 0), snapshotReceived[float64]{messageSender{agentID(k), 1, 2}, 1, []float64{v}})
			}
		}
		m.Step(time.Unix(60, 0), Tick{})
		if m.state != stateComputing || x[0] != tt.want || m.stats.JoinedFromSnapshots != (tt.want != 7) {
			t.Errorf("of %v it begins with %v, joined: %t; want %v", tt.said, x, m.stats.JoinedFromSnapshots, tt.want)
		}
	}
}

func agentID(k int) wire.AgentID { return wire.AgentID('a' + rune(k)) }
