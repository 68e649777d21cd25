package coordinator_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// liar is a device of a federation of honest ones that sends lies for updates.
type liar struct {
	*stranger
	id   wire.AgentID
	data table
	seen wire.RoundID // the last round that it has looked at
}

// lie takes part in the open round, if there is a new one, with what it makes of the update that it would honestly
// send.
func (l *liar) lie(make func(honest []float32) []float32) {
	l.listen()
	if l.ann.Phase == wire.PhaseGathering {
		l.say(l.f.topics.Status(l.id), l.hello(l.id))
	}
	if l.ann.Phase != wire.PhaseOpen || l.ann.Kind != wire.KindTraining || l.open.Round == l.seen {
		return
	}
	l.seen = l.open.Round
	if l.last(l.f.topics.Device(l.id), wire.TypeInvitation) == nil {
		return
	}
	l.heard = nil
	p, base := l.model()
	out, err := p.Local(task.Job[float32]{
		Base: base, Samples: l.load(p), Weight: 1, Offset: l.ann.Offset, Steps: 5,
		Rand: task.Source(l.ann.Seed, l.open.Round, task.Stream(l.id)),
	})
	if err != nil {
		l.f.t.Fatal(err)
	}
	l.offer(l.id, l.update(l.id, func(*wire.Header, *wire.Update) {}, make(out.Vector)...))
}

// model is that of the present announcement.
func (l *liar) model() (*task.Problem[float32], []float32) {
	described, err := wire.DecodeTask(l.ann.Task.Inline)
	if err != nil {
		l.f.t.Fatal(err)
	}
	p, err := task.Compile[float32](described)
	if err != nil {
		l.f.t.Fatal(err)
	}
	base := make([]float32, len(l.ann.Base.Inline)/4)
	if err := wire.DecodeVector(base, l.ann.Base.Inline); err != nil {
		l.f.t.Fatal(err)
	}
	return p, base
}

// load prepares the device's rows.
func (l *liar) load(p *task.Problem[float32]) *learner.Samples[float32] {
	rows, err := l.data.Load(p.Task.Features, p.Task.Target)
	if err == nil {
		err = p.Prepare(rows)
	}
	if err != nil {
		l.f.t.Fatal(err)
	}
	return rows
}

func all(x float32) func([]float32) []float32 {
	return func(v []float32) []float32 {
		for i := range v {
			v[i] = x
		}
		return v
	}
}

func times(x float32) func([]float32) []float32 {
	return func(v []float32) []float32 {
		for i := range v {
			v[i] *= x
		}
		return v
	}
}

// A device of seven lies in each of 200 rounds. It can neither ruin the model nor stop the federation.
func TestOneLiarInTwoHundredRounds(t *testing.T) {
	for _, lie := range []struct {
		name  string
		make  func([]float32) []float32
		least float64 // R² of any model after the 20th
		held  []bool  // whether there are held-out data
	}{
		{"1e30", all(1e30), 0.98, []bool{true}},
		{"3.4e38", all(3.4e38), 0.98, []bool{false}},
		{"not a number", all(float32(math.NaN())), 0.98, []bool{false}},
		// what is not over 3 times as long as usual is taken
		{"ten times its update backwards", times(-10), 0.8, []bool{true, false}},
	} {
		for _, held := range lie.held {
			t.Run(fmt.Sprintf("%s, held-out data %v", lie.name, held), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { oneLiar(t, lie.make, lie.least, held) })
			})
		}
	}
}

// oneLiar runs it. Without held-out data gather.minimum also lets the liar into every round.
func oneLiar(t *testing.T, lie func([]float32) []float32, least float64, held bool) {
	f := newFederation(t, 6, memory.Options{})
	l := &liar{stranger: newStranger(f), id: "liar", data: rowsOf(3, 100)}
	f.enrol(l.id)
	r := &f.cfg.Round
	r.Participants, r.Quorum, r.Rounds, r.Weights, r.Gather.Target, r.Gather.Minimum, r.Deadline = 7, 4, 200,
		spec.WeightsEqual, 7, 7, time.Minute
	if held {
		f.held(l.data)
		r.Gather.Minimum = 6
	}
	f.start()
	worst := math.Inf(1)
	for l.ann.Phase != wire.PhaseFinished {
		l.lie(lie)
		if l.ann.Version > 20 {
			p, w := l.model()
			worst = min(worst, p.Model.Score(w, l.load(p)).R2)
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
	for _, o := range facts[coordinator.UpdateLeftOut](f) {
		if o.Agent != l.id {
			t.Errorf("an honest device's update was left out: %+v", o)
		}
	}
	for _, e := range facts[round.WorkEnded](f) {
		if e.Result == round.WorkDeclined {
			t.Errorf("an honest device declined: %+v", e)
		}
	}
}
