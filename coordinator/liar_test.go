package coordinator_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/liar"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// false rows of a device, in the columns of rowsOf.
func falseRows(n int, warm, wet, wind, power float64) table {
	return table("warm,wet,wind,power\n" + strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", warm, wet, wind, power), n/2) +
		strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", -warm, -wet, -wind, power), n-n/2))
}

// A device of seven gives false statistics and leaves. The model becomes as good as without it.
func TestStatisticsOfOneLiar(t *testing.T) {
	for _, tt := range []struct {
		name string
		rows table
	}{
		{"a million", falseRows(10, 1e6, -1e6, 1e6, 400)},
		{"near the largest float32", falseRows(10, 1e37, 1e37, 1e37, 1e37)},
		{"a false target", falseRows(10, 15, 60, 2, -1e9)},
		{"no spread", falseRows(1000, 0, 0, 0, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 7, memory.Options{})
				f.held(rowsOf(3, 100))
				f.cfg.Round.Rounds = 15
				f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.Gather.Minimum = 6, 6, 6
				liar := f.agents[6]
				liar.data = tt.rows
				f.start()
				f.until(time.Hour, "standardised",
					func() bool { return len(facts[coordinator.StatisticsReady](f)) == 1 })
				liar.kill()
				f.finished(10 * time.Hour)
				models := facts[coordinator.ModelReady](f)
				if r2 := models[len(models)-1].Score.R2; !(r2 > 0.98) {
					t.Errorf("R² %v; without the liar it is over 0.98", r2)
				}
				far := facts[coordinator.StatisticsReady](f)[0].Far
				if spread := tt.name != "no spread"; spread && (len(far) != 1 || far[0].Agent != liar.id) || !spread &&
					len(far) > 0 {
					t.Errorf("far from the others: %+v", far)
				}
			})
		})
	}
}

// Statistics that no data can have are refused, each for its agent alone.
func TestImpossibleStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		evil := []wire.AgentID{"rows", "none", "spread", "large"}
		for _, id := range evil {
			f.enrol(id)
		}
		f.cfg.Round.Rounds, f.cfg.Round.Quorum = 1, 3
		f.cfg.Round.Gather.Target = 3 + len(evil)
		s := newStranger(f)
		f.start()
		s.listen()
		for _, id := range evil {
			s.say(f.topics.Status(id), s.hello(id))
		}
		f.until(time.Minute, "open", func() bool { return len(facts[round.RoundOpened](f)) == 1 })
		s.listen()
		offer := func(id wire.AgentID, v ...float64) {
			s.offer(id, s.update(id, func(_ *wire.Header, u *wire.Update) {
				payload := wire.AppendVector(nil, v)
				m, err := wire.NewManifest(payload, s.ann.Schema)
				if err != nil {
					t.Fatal(err)
				}
				u.Kind, u.Samples, u.Payload, u.Inline = wire.KindStatistics, 10, m, payload
			}, 0))
		}
		offer("rows", 1e9, 150, 600, 20, 4000, 3000, 40000, 60, 1.6e6)
		offer("none", 0, 150, 600, 20, 4000, 3000, 40000, 60, 1.6e6)
		offer("spread", 10, 150, 600, 20, 4000, 100, 40000, 60, 1.6e6)
		offer("large", 10, 150, 600, 20, 4000, 1e150, 40000, 60, 1.6e6)
		for _, v := range f.verdicts() {
			if v != "refused: malformed" {
				t.Errorf("%q", v)
			}
		}
		if n := len(f.verdicts()); n != len(evil) {
			t.Errorf("%d of %d refused", n, len(evil))
		}
		f.finished(time.Hour)
	})
}

// present returns the task and the model of the announcement that was heard last.
func (s *stranger) present() (*task.Problem[float32], []float32) {
	described, err := wire.DecodeTask(s.ann.Task.Inline)
	if err != nil {
		s.f.t.Fatal(err)
	}
	p, err := task.Compile[float32](described)
	if err != nil {
		s.f.t.Fatal(err)
	}
	base := make([]float32, len(s.ann.Base.Inline)/4)
	if err := wire.DecodeVector(base, s.ann.Base.Inline); err != nil {
		s.f.t.Fatal(err)
	}
	return p, base
}

// prepared returns rows in the task's terms.
func (t table) prepared(f *federation, p *task.Problem[float32]) *learner.Samples[float32] {
	rows, err := t.Load(p.Task.Features, p.Task.Target)
	if err == nil {
		err = p.Prepare(rows)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// A device of seven lies in each of 200 rounds. It can neither ruin the model nor stop the federation.
func TestOneLiarInTwoHundredRounds(t *testing.T) {
	for lie, want := range map[string]struct {
		least float64 // R² of any model after the 20th
		held  []bool  // whether there are held-out data
	}{
		"1e30":      {0.98, []bool{true}},
		"max":       {0.98, []bool{false}},
		"nan":       {0.98, []bool{false}},
		"backwards": {0.95, []bool{true, false}}, // of which no more than 3 times the usual length counts
	} {
		for _, held := range want.held {
			t.Run(fmt.Sprintf("%s, held-out data %v", lie, held), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { oneLiar(t, lie, want.least, held) })
			})
		}
	}
}

// oneLiar runs it. Without held-out data gather.minimum also lets the liar into every round.
func oneLiar(t *testing.T, lie string, least float64, held bool) {
	f := newFederation(t, 7, memory.Options{})
	l, rows := f.agents[6], rowsOf(3, 100)
	var err error
	if l.lie, err = liar.Parse(lie); err != nil {
		t.Fatal(err)
	}
	l.data = rows
	r := &f.cfg.Round
	r.Participants, r.Quorum, r.Rounds, r.Weights, r.Gather.Target, r.Gather.Minimum, r.Deadline = 7, 4, 200,
		spec.WeightsEqual, 7, 7, time.Minute
	if held {
		f.held(rows)
		r.Gather.Minimum = 6
	}
	s := newStranger(f)
	f.start()
	worst := math.Inf(1)
	for s.ann.Phase != wire.PhaseFinished {
		s.listen()
		if s.ann.Version > 20 && len(s.ann.Base.Inline) > 0 {
			p, w := s.present()
			worst = min(worst, p.Model.Score(w, rows.prepared(f, p)).R2)
		}
		wait(100 * time.Millisecond)
	}
	t.Logf("the worst R² after 20 rounds is %v", worst)
	if !(worst > least) {
		t.Errorf("the worst R² after 20 rounds is %v", worst)
	}
	if a := facts[round.RoundAbandoned](f); len(a) > 0 {
		t.Errorf("%d rounds were abandoned, the first %+v", len(a), a[0])
	}
	lies := 0
	for _, o := range facts[coordinator.UpdateLeftOut](f) {
		if lies++; o.Agent != l.id {
			t.Errorf("an honest device's update was left out: %+v", o)
		}
	}
	for _, u := range facts[round.UpdateRefused](f) {
		if lies++; u.Agent != l.id {
			t.Errorf("an honest device's update was refused: %+v", u)
		}
	}
	for _, c := range facts[coordinator.UpdatesClipped](f) {
		if lies++; !slices.Equal(c.Agents, []wire.AgentID{l.id}) {
			t.Errorf("an honest device's update was clipped: %+v", c)
		}
	}
	if lies == 0 {
		t.Error("no update was left out, refused or clipped: nobody has lied")
	}
	for _, e := range facts[round.WorkEnded](f) {
		if e.Result == round.WorkDeclined {
			t.Errorf("an honest device declined: %+v", e)
		}
	}
}
