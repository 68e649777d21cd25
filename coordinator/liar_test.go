package coordinator_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// falseRows returns n false rows of a device, in the columns of rowsOf.
func falseRows(n int, warm, wet, wind, power float64) table {
	return table("warm,wet,wind,power\n" + strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", warm, wet, wind, power), n/2) +
		strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", -warm, -wet, -wind, power), n-n/2))
}

// TestStatisticsOfOneLiar checks that the model does not become worse if one of seven devices sends false column
// statistics and then leaves.
func TestStatisticsOfOneLiar(t *testing.T) {
	for _, tt := range []struct {
		name string
		rows table
	}{
		{"near the largest float32", falseRows(10, 1e37, 1e37, 1e37, 1e37)},
		{"a false target", falseRows(10, 15, 60, 2, -1e9)},
		{"no spread", falseRows(1000, 0, 0, 0, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 7, memory.Options{})
				f.held(rowsOf(3, 100))
				f.cfg.Round.MaxAggregations = 15
				f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents = 6, 6, 6
				liar := f.agents[6]
				liar.data = tt.rows
				f.start()
				f.until(time.Hour, "standardised",
					func() bool { return len(events[aggregation.StatisticsReady](f)) == 1 })
				liar.kill()
				f.finished(10 * time.Hour)
				models := events[aggregation.ModelReady](f)
				if r2 := models[len(models)-1].HeldOutScore.R2; !(r2 > 0.98) {
					t.Errorf("R² %v; without the liar it is over 0.98", r2)
				}
				far := events[aggregation.StatisticsReady](f)[0].DistantDataAgents
				if spread := tt.name != "no spread"; spread && (len(far) != 1 || far[0].Agent != liar.id) || !spread &&
					len(far) > 0 {
					t.Errorf("far from the others: %+v", far)
				}
			})
		})
	}
}

// TestImpossibleStatistics checks that statistics with implausible values are refused, for each agent independently of
// the others.
func TestImpossibleStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		evil := []wire.AgentID{"rows", "none", "spread", "large"}
		for _, id := range evil {
			f.enrol(id)
		}
		f.cfg.Round.MaxAggregations, f.cfg.Round.Quorum = 1, 3
		f.cfg.Round.Gather.TargetAgents = 3 + len(evil)
		s := newStranger(f)
		f.start()
		s.listen()
		for _, id := range evil {
			s.say(f.topics.AgentToCoordinator(id), s.hello(id))
		}
		f.until(time.Minute, "open", func() bool { return len(events[round.RoundOpened](f)) == 1 })
		s.listen()
		offer := func(id wire.AgentID, v ...float64) {
			s.offer(id, s.update(id, func(_ *wire.Header, u *wire.Update) {
				payload := wire.AppendVector(nil, v)
				m, err := wire.NewManifest(payload, s.ann.UpdateSchema)
				if err != nil {
					t.Fatal(err)
				}
				u.Kind, u.Samples, u.PayloadManifest, u.InlinePayload = wire.KindStatistics, 10, m, payload
			}, 0))
		}
		offer("rows", 1e9, 15, 60, 2, 400, 750, 4000, 20, 1000)
		offer("none", 0, 15, 60, 2, 400, 750, 4000, 20, 1000)
		offer("spread", 10, 15, 60, 2, 400, -1, 4000, 20, 1000)
		offer("large", 10, 15, 60, 2, 400, 1e150, 4000, 20, 1000)
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

// prepared returns the rows of the table after the preprocessing that the task defines.
func (t table) prepared(f *federation, p *task.CompiledTask[float32]) *learner.Samples[float32] {
	rows, err := t.Load(p.Task.Features, p.Task.TargetColumn)
	if err == nil {
		err = p.PrepareSamples(rows)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// sevenDevices is a federation of seven devices that all participate in each round. The coordinator has no held-out
// data, so the test scores the models itself.
type sevenDevices struct {
	*federation
	sent   []byte // encoded task in the latest announcement
	models map[wire.ModelVersion][]byte
}

func newSeven(t *testing.T, weights spec.AgentWeightRule, rounds int) *sevenDevices {
	f := &sevenDevices{newFederation(t, 7, memory.Options{}), nil, map[wire.ModelVersion][]byte{}}
	f.agents[6].data = rowsOf(3, 100)
	r := &f.cfg.Round
	r.Participants, r.Quorum, r.MaxAggregations, r.AgentWeightRule, r.RoundTimeout = 7, 4, rounds, weights, time.Minute
	r.Gather.TargetAgents, r.Gather.MinAgents, r.UsesRobustAggregation = 7, 6, true
	f.coord.moment = func(said any) {
		m, ok := said.(mqtt.Message)
		if !ok {
			return
		}
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil || e.Type != wire.TypeAnnouncement {
			return
		}
		if a, err := wire.DecodeAnnouncement(e.Body); err == nil && len(f.inline(a.BaseModel)) > 0 {
			f.sent, f.models[a.BaseModelVersion] = f.inline(a.Task), f.inline(a.BaseModel)
		}
	}
	return f
}

// run runs the federation to its end. It returns the R² of each model on held-out rows, by model version, and the
// duration of the run.
func (f *sevenDevices) run() (r2 []float64, took time.Duration) {
	began := time.Now()
	f.start()
	f.finished(10 * time.Hour)
	took = time.Since(began)
	f.stop()
	described, err := wire.DecodeTask(f.sent)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := task.Compile[float32](described)
	if err != nil {
		f.t.Fatal(err)
	}
	rows := rowsOf(4, 200).prepared(f.federation, p)
	for v := range f.cfg.Round.MaxAggregations + 1 {
		model := make([]float32, len(f.models[wire.ModelVersion(v)])/4)
		if err := wire.DecodeVector(model, f.models[wire.ModelVersion(v)]); err != nil {
			f.t.Fatal(err)
		}
		r2 = append(r2, p.Model.Score(model, rows).R2)
	}
	return r2, took
}

// since returns the first model version from which all later scores are at least the value least.
func since(r2 []float64, least float64) int {
	for v, x := range slices.Backward(r2) {
		if !(x >= least) {
			return v + 1
		}
	}
	return 0
}

// oneOfSeven lists the attacks that one dishonest device may attempt, and their visible effects.
var oneOfSeven = map[string]struct {
	lie     string // name in package liar; empty if the device sends no updates
	weights spec.AgentWeightRule
	shows   func(f *federation, id wire.AgentID) bool
}{
	"1e30":     {"constant:1e30", spec.WeightsEqual, isLeftOut(aggregation.LeftOutAbove)},
	"3.4e38":   {"max", spec.WeightsEqual, isLeftOut(aggregation.LeftOutAbove)},
	"NaN":      {"nan", spec.WeightsEqual, isRefused},
	"flip ×10": {"signflip:10", spec.WeightsEqual, isLeftOut(aggregation.LeftOutNorm)},
	"flip":     {"signflip:1", spec.WeightsEqual, nil},
	"false moments": {"moments", spec.WeightsEqual, func(f *federation, id wire.AgentID) bool {
		far := events[aggregation.StatisticsReady](f)[0].DistantDataAgents
		return len(far) == 1 && far[0].Agent == id
	}},
	"a billion rows": {"rows", spec.WeightsSamples, func(f *federation, id wire.AgentID) bool {
		c := events[round.RowCountsTooLarge](f)
		return len(c) > 0 && slices.Equal(c[0].Agents, []wire.AgentID{id})
	}},
	"nothing": {"", spec.WeightsEqual, func(f *federation, id wire.AgentID) bool {
		out, back := events[round.AgentSidelined](f), events[round.AgentReadmitted](f)
		return len(out) > 1 && out[0].Reason == round.SidelinedSilent && len(back) > 0 && back[0].Agent == id
	}},
}

func isLeftOut(why aggregation.LeaveOutReason) func(*federation, wire.AgentID) bool {
	return func(f *federation, id wire.AgentID) bool {
		left := events[aggregation.UpdateLeftOut](f)
		return len(left) > 0 && left[0].Reason == why && left[0].Agent == id
	}
}

func isRefused(f *federation, id wire.AgentID) bool {
	refused := events[round.UpdateRefused](f)
	return len(refused) > 0 && refused[0].Reason == wire.RefuseNotFinite && refused[0].Agent == id
}

// TestOneLiarOfSeven checks that one dishonest device among seven slows learning by at most a factor of 2. The model
// must reach R² 0.95 within twice the number of rounds that reach R² 0.98 without the attack, and stay above 0.95.
// Rounds may take at most 1.5 times as long plus one deadline, and honest devices must not be blamed.
func TestOneLiarOfSeven(t *testing.T) {
	all := []spec.AgentWeightRule{spec.WeightsEqual, spec.WeightsSamples}
	if testing.Short() {
		all = all[:1]
	}
	for _, weights := range all {
		var rounds int
		var each time.Duration
		t.Run("honest, "+string(weights), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newSeven(t, weights, 60)
				r2, took := f.run()
				rounds, each = since(r2, 0.98), took/60
				f.blamed("")
			})
		})
		if rounds < 5 || rounds > 40 {
			t.Fatalf("an honest federation comes to R² 0.98 after %d rounds", rounds)
		}
		t.Logf("weights %s: R² 0.98 after %d rounds of %v", weights, rounds, each)
		for name, x := range oneOfSeven {
			if x.weights != weights || x.shows == nil && testing.Short() {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newSeven(t, weights, 4*rounds)
					l := f.agents[6]
					if l.sendsNothing = x.lie == ""; !l.sendsNothing {
						var err error
						if l.lie, err = liar.Parse(x.lie); err != nil {
							t.Fatal(err)
						}
					}
					r2, took := f.run()
					t.Logf("R² 0.95 after %d rounds, %v at the end; %d rounds of %v", since(r2, 0.95), r2[4*rounds],
						4*rounds, took/time.Duration(4*rounds))
					if n := since(r2, 0.95); n > 2*rounds {
						t.Errorf("R² is 0.95 after %d rounds; without the liar it is 0.98 after %d", n, rounds)
					}
					if most := each*time.Duration(6*rounds) + f.cfg.Round.RoundTimeout; took > most {
						t.Errorf("%d rounds took %v, more than %v", 4*rounds, took, most)
					}
					if x.shows != nil && !x.shows(f.federation, l.id) {
						t.Errorf("the liar is not named; the last events:\n%s", f.tail(20))
					}
					f.blamed(l.id)
				})
			})
		}
	}
}

// TestOneLiarOfSevenWithoutRobust checks that without round.robust a dishonest device may reduce accuracy but never
// ends the run. Archived models are finite, honest devices are not suspended, and the log names the dishonest device.
func TestOneLiarOfSevenWithoutRobust(t *testing.T) {
	for _, lie := range []string{"constant:1e30", "max", "nan", "signflip:10"} {
		t.Run(lie, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds = 80
				f := newSeven(t, spec.WeightsEqual, rounds)
				f.cfg.Round.UsesRobustAggregation = false
				l := f.agents[6]
				var err error
				if l.lie, err = liar.Parse(lie); err != nil {
					t.Fatal(err)
				}
				f.start()
				f.finished(10 * time.Hour)
				f.stop()
				if n := len(events[aggregation.ModelReady](f.federation)); n != rounds {
					t.Errorf("%d of %d models were made", n, rounds)
				}
				for v, model := range f.federation.models() {
					if err := wire.DecodeVector(make([]float32, len(model)/4), model); err != nil {
						t.Errorf("model %d: %v", v, err)
					}
				}
				for _, s := range events[round.AgentSidelined](f.federation) {
					if s.Agent != l.id {
						t.Errorf("an honest device sits out: %+v", s)
					}
				}
				named := len(events[round.UpdateRefused](f.federation)) +
					len(events[aggregation.RepeatedLargeUpdates](f.federation))
				for _, m := range events[aggregation.ModelRejected](f.federation) {
					named += len(m.SuspectAgents)
				}
				if named == 0 {
					t.Error("the liar is not named")
				}
			})
		})
	}
}

// TestLocalStepsDiverge checks that the run returns to the previous model if most agents report that their local steps
// diverged from the current model.
func TestLocalStepsDiverge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.AgentWeightRule, f.cfg.Round.Gather.MinAgents = 20, spec.WeightsEqual,
			2
		var err error
		if f.agents[1].lie, err = liar.Parse("max"); err != nil {
			t.Fatal(err)
		}
		f.start()
		f.finished(10 * time.Hour)
		rejected := events[aggregation.ModelRejected](f)
		if len(rejected) == 0 || rejected[0].Version != 1 || rejected[0].EarlierVersion != 0 ||
			rejected[0].NextVersion != 2 ||
			!slices.Equal(rejected[0].SuspectAgents, []wire.AgentID{"a1"}) {
			t.Errorf("rejected: %+v", rejected)
		}
	})
}

// nearZero returns a federation of ten devices that fit the single weight w of the model y = w·1 with exact gradients.
// Nine devices have y = −0.04 … 0.04 and one device has y = c. The mean risk is minimal at w⁰ = c/10.
func nearZero(t *testing.T, c float64, rounds int) *federation {
	f := newFederation(t, 10, memory.Options{})
	f.cfg.Standardize, f.cfg.FeatureClipDeviations = false, 0
	f.cfg.Task.Features, f.cfg.Task.TargetColumn = []string{"x"}, "y"
	f.cfg.Task.Model.HasBias, f.cfg.Task.Model.Ridge = false, 0
	tr := &f.cfg.Task.Training
	tr.BatchSize, tr.StepSize, tr.MinLocalSteps, tr.MaxLocalSteps = 0, 0.25, 1, 1
	f.cfg.Round.MaxAggregations, f.cfg.Round.AgentWeightRule = rounds, spec.WeightsEqual
	for k, a := range f.agents {
		y := 0.01 * float64(k-4)
		if k == 9 {
			y = c
		}
		a.data = table("x,y\n" + strings.Repeat(fmt.Sprintf("1,%g\n", y), 10))
	}
	return f
}

// last returns the weight of the last model.
func (f *federation) last() float64 {
	models, v := f.models(), []float32{0}
	newest := slices.Max(slices.Collect(maps.Keys(models)))
	if err := wire.DecodeVector(v, models[newest]); err != nil {
		f.t.Fatal(err)
	}
	return float64(v[0])
}

// TestUnusualDevice checks that the average of honest devices is exact even if the data of one device differ greatly.
// With round.robust, the influence of the unusual device is bounded but not zero. In both cases the device is reported
// for its unusually large updates.
func TestUnusualDevice(t *testing.T) {
	for _, c := range []float64{3, 5, 10, 30} {
		for _, robust := range []bool{false, true} {
			t.Run(fmt.Sprint(c, robust), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := nearZero(t, c, 60)
					f.cfg.Round.UsesRobustAggregation = robust
					f.start()
					f.finished(10 * time.Hour)
					f.stop()
					w := f.last()
					if exact := math.Abs(w-c/10) < 1e-5*c; exact == robust || w < 0.005 {
						t.Errorf("robust %v: the model is %v; w⁰ = %v", robust, w, c/10)
					}
					large := events[aggregation.RepeatedLargeUpdates](f)
					if len(large) < 20 {
						t.Fatalf("%d reports of large updates", len(large))
					}
					for _, l := range large[5:] {
						counted := l.Norm
						if robust {
							counted = 3 * l.UsualNorm
						}
						if l.Agent != "a9" || math.Abs(l.ClippedNorm/counted-1) > 1e-6 {
							t.Errorf("robust %v: %+v; want a9, counted as %v", robust, l, counted)
						}
					}
					for _, o := range events[aggregation.UpdateLeftOut](f) {
						if o.Round > 12 || !robust {
							t.Errorf("robust %v: left out: %+v", robust, o)
						}
					}
				})
			})
		}
	}
}

// blamed checks that no device except the given dishonest device was blamed, and that no round was abandoned.
func (f *federation) blamed(liar wire.AgentID) {
	f.t.Helper()
	blame := func(id wire.AgentID, event any) {
		if id != liar {
			f.t.Errorf("an honest device is blamed: %+v", event)
		}
	}
	for _, o := range events[aggregation.UpdateLeftOut](f) {
		blame(o.Agent, o)
	}
	for _, u := range events[round.UpdateRefused](f) {
		blame(u.Agent, u)
	}
	for _, s := range events[round.AgentSidelined](f) {
		blame(s.Agent, s)
	}
	for _, e := range events[agentround.WorkEnded](f) {
		if e.Result == agentround.WorkDeclined {
			f.t.Errorf("a device declined: %+v", e)
		}
	}
	if a := events[round.RoundAbandoned](f); len(a) > 0 {
		f.t.Errorf("%d rounds were abandoned, the first %+v", len(a), a[0])
	}
}
