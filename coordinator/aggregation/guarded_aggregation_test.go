package aggregation

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// line contains held-out rows on the line y = 2x.
var line = data.MemorySource(rowsOfLine)

func rowsOfLine([]string, string) (*learner.Samples[float32], error) {
	return learner.NewSamples(1, []float32{-2, -1, 1, 2}, []float32{-4, -2, 2, 4}), nil
}

// benchOf returns an Aggregator with a model of one weight, and a spool with the given updates. Agent k reports the
// risk k².
func benchOf(t *testing.T, base float32, held data.Source, updates ...float32) (*Aggregator, *store.UpdateSpool,
	round.AggregateUpdates) {
	t.Helper()
	cfg := Config{Round: round.DefaultConfig(), HeldOutSource: held, Task: wire.Task{
		Name: "line", Features: []string{"x"}, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 1, StepSize: 0.1,
			MinLocalSteps: 1,
			MaxLocalSteps: 1, StepTimeBudgetMillis: 1000},
	}}
	d, err := runs.OpenStateFolder(store.LocalDisk, t.TempDir())
	if err == nil {
		err = d.OpenCurrentRunModels(1)
	}
	w := &Aggregator{cfg: cfg, folder: d, now: time.Now,
		RetryWrite: func(_ string, write func() error) error { return write() }}
	if err == nil {
		err = w.setTask(cfg.Task)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.useWeight(t, base)
	spool, err := store.LocalDisk.OpenSpool(t.TempDir(), store.RoundSpoolID{},
		func(problem string) { t.Error(problem) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(spool.Close(), d.Close()) })
	e := round.AggregateUpdates{Round: 9, Plan: round.Plan{Kind: wire.KindTraining, BaseModelVersion: 7,
		Exchange: spec.ExchangeParameters}}
	var all []round.Participant
	for k, v := range updates {
		p := wire.AppendVector(nil, []float32{v})
		id := fmt.Sprint("a", k)
		m, err := wire.NewManifest(p, wire.Digest{})
		if err != nil {
			t.Fatal(err)
		}
		u := wire.Update{Kind: wire.KindTraining, PayloadManifest: m, RiskBefore: float64(k * k)}
		h := wire.Header{Root: wire.FirstRootVersion,
			Type: wire.TypeUpdate, Federation: "plant", Sender: wire.AgentID(id), Epoch: 1, Run: 7,
			Round: 9, Sequence: 1}
		meta := wire.SignEnvelope(nil, h, u.Body(), ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
		if err := spool.Put(
			store.SpoolEntry{Agent: id, PayloadDigest: wire.BlobDigest(p), PayloadSize: int64(len(p)),
				SignedManifest: meta},
			p); err != nil {
			t.Fatal(err)
		}
		all = append(all, round.Participant{Agent: wire.AgentID(id), DrawCount: 1, Weight: 1,
			AcceptedUpdateDigest: wire.BlobDigest(p)})
	}
	onDisk, err := w.SpooledUpdates(spool, wire.KindTraining)
	if err != nil {
		t.Fatal(err)
	}
	for k := range all {
		u := onDisk[all[k].Agent]
		all[k].UpdateNorm, all[k].UpdateCodec, all[k].ReportedRisk = u.Norm, u.Codec, u.RiskBefore
	}
	e.Contributions = round.BuildContributions(all, &e.Plan, &cfg.Round)
	return w, spool, e
}

// useWeight sets the current model, which has one weight.
func (w *Aggregator) useWeight(t *testing.T, x float32) {
	t.Helper()
	if err := w.setBaseModel(vector(x)); err != nil {
		t.Fatal(err)
	}
}

func (w *Aggregator) weight() float32 {
	var v [1]float32
	if err := wire.DecodeVector(v[:], w.baseModelBlob.Data); err != nil {
		panic(err)
	}
	return v[0]
}

func vector(x ...float32) []byte { return wire.AppendVector(nil, x) }

func TestGuard(t *testing.T) {
	good := slices.Repeat([]round.PastAggregationSummary{{HeldOutRisk: 0.01, MedianNorm: 0.1}},
		round.MaxPastAggregations)
	for _, tt := range []struct {
		name    string
		held    data.Source
		base    float32
		recent  []round.PastAggregationSummary
		updates []float32
		model   float32 // expected weight; 0 if the round is abandoned
		left    string  // agents whose updates are left out, and the reasons
	}{
		{"nothing to leave out", line, 1, nil, []float32{1, 1.5, 0.5, 1, 1}, 2, ""},
		{"1e30", line, 1, nil, []float32{1, 1e30, 1, 1, 1}, 2, "a1 refuse_above"},
		{"1e30 without held-out data", nil, 1, nil, []float32{1, 1e30, 1, 1, 1}, 2, "a1 refuse_above"},
		{"of few one is clipped", nil, 1, nil, []float32{1, -1e30, 1, 1}, 1, ""},
		{"of two nothing can be told", nil, 1, nil, []float32{1, 5}, 4, ""},
		{"of two, held-out data tell", line, 1, nil, []float32{1, 1e30}, 2, "a1 risk"},
		{"of two, one is not finite", nil, 3e38, nil, []float32{1e37, 3e38}, 3.1e38, "a1 not_finite"},
		{"two of seven", nil, 1, nil, []float32{1, -1e30, 1, 1, 1e30, 1, 1}, 2, "a4 refuse_above a1 refuse_above"},
		{"a long one that does good", line, 1, nil, []float32{0.01, 0.01, 0.01, 0.01, 0.9}, 1.014, ""},
		{"a long one without held-out data", nil, 1, nil, []float32{0.01, 0.01, 0.01, 0.01, 0.9}, 1.01, "a4 norm"},
		{"a long one in a quiet round", nil, 1, []round.PastAggregationSummary{{MedianNorm: 0.31}, {MedianNorm: 0.01},
			{MedianNorm: 0.01}},
			[]float32{0.01, 0.01, 0.01, 0.01, 0.9}, 1.014, ""},
		{"a clipped one is left out of a fold with a fault", line, 1.9,
			[]round.PastAggregationSummary{{HeldOutRisk: 0.01,
				MedianNorm: 3}},
			[]float32{0.1, 0.1, 250}, 2, "a2 risk"},
		{"none is long: the longest goes", line, 1.9, good, []float32{0.1, 250}, 2, "a1 risk"},
		{"most of them lie: the round is abandoned", line, 1.9, good, []float32{0.1, 249, 250}, 0, "a2 risk"},
		{"alone", line, 1.9, good, []float32{250}, 0, "a0 risk"},
		{"alone, without held-out data: nothing can be told", nil, 1.9, good, []float32{250}, 251.9, ""},
		{"alone, as long as it may be", nil, 1.5, good, []float32{0.5}, 2, ""},
		{"worse, and better than knowing nothing", line, 1.9, good, []float32{-1.5, -1.5}, 0.4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, spool, e := benchOf(t, tt.base, tt.held, tt.updates...)
			w.cfg.Round.UsesRobustAggregation = true
			e.Plan.RecentAggregations = tt.recent
			folded, events := w.Aggregate(1, spool, e)
			next, err := folded.NextPlan, folded.Err
			var left []string
			for _, f := range events {
				if f, ok := f.(UpdateLeftOut); ok {
					left = append(left, string(f.Agent), string(f.Reason))
				}
			}
			if got := strings.Join(left, " "); got != tt.left {
				t.Errorf("left out %q, want %q", got, tt.left)
			}
			if tt.model == 0 {
				if err == nil {
					t.Errorf("the model became %v", w.weight())
				}
				return
			}
			if err != nil || math.Abs(float64(w.weight()/tt.model)-1) > 1e-5 || next.BaseModelVersion != 8 {
				t.Errorf("weight %v, error %v, plan %+v; want weight %v", w.weight(), err, next, tt.model)
			}
			if n := len(next.RecentAggregations); n != min(round.MaxPastAggregations, len(tt.recent)+1) {
				t.Errorf("%d folds are remembered", n)
			}
		})
	}
}

// TestGuardIsExact checks that without round.robust the aggregate is the mean of all updates, whatever their norms.
// Only a model that is not finite or has diverged on held-out data is rejected.
func TestGuardIsExact(t *testing.T) {
	for _, tt := range []struct {
		name    string
		held    data.Source
		updates []float32
		model   float64
		left    string
	}{
		{"one is 9 times as long", nil, []float32{0.01, 0.01, 0.01, 0.01, 0.09}, 1.026, ""},
		{"one is 90 times as long", nil, []float32{0.01, 0.01, 0.01, 0.01, 0.9}, 1.188, ""},
		{"one is 200 times as long", line, []float32{0.01, 0.01, 0.01, 0.01, 2}, 1.408, ""},
		{"as long as a float32 can be", nil, []float32{1, 1, 1, 1, math.MaxFloat32}, 6.8056474e37, ""},
		{"diverged on held-out data", line, []float32{1, 1e30, 1, 1, 1}, 2, "a1"},
	} {
		w, spool, e := benchOf(t, 1, tt.held, tt.updates...)
		folded, events := w.Aggregate(1, spool, e)
		var left []string
		for _, f := range events {
			if f, ok := f.(UpdateLeftOut); ok {
				left = append(left, string(f.Agent))
			}
		}
		if folded.Err != nil || math.Abs(float64(w.weight())/tt.model-1) > 1e-5 ||
			strings.Join(left, " ") != tt.left {
			t.Errorf("%s: weight %v, left out %v, %v; want %v, %q", tt.name, w.weight(), left, folded.Err, tt.model,
				tt.left)
		}
	}
}

// TestDivergedModelIsRejected checks that a model that diverged according to its participants is replaced by the
// previous model. Agents with large updates are reported and suspended. Repeating the aggregation after a crash yields
// the same result.
func TestDivergedModelIsRejected(t *testing.T) {
	w, spool, e := benchOf(t, 1, nil, 1, 1, 1, 1, 1) // reported risks of the base model: 0, 1, 4, 9, 16
	w.cfg.Logger = slog.New(slog.DiscardHandler)
	_, err := w.storeModelAndPlanTraining(1, 6, 0, vector(1.5), nil)
	if err == nil {
		err = w.ArchivePendingModel()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		recent   float64
		first    float64
		suspects []wire.AgentID
		diverged bool // true if most local steps diverge
		rejected bool
	}{
		{"worse than ten times the worst", 0.39, 0.1, []wire.AgentID{"a3"}, false, true},
		{"not worse than ten times the worst", 0.4, 0.1, []wire.AgentID{"a3"}, false, false},
		{"better than ten times the first", 0.1, 0.4, []wire.AgentID{"a3"}, false, false},
		{"made by no fold of this run", 0.1, 0.1, nil, false, false},
		{"local steps diverge", 4, 4, []wire.AgentID{"a3"}, true, true},
	} {
		w.useWeight(t, 1e9)
		e.Plan.BaseModelVersion, e.MostParticipantsDiverged = 7, tt.diverged
		e.Plan.RecentAggregations, e.Plan.FirstReportedRisks,
			e.Plan.SuspectAgents = []round.PastAggregationSummary{{ReportedRisks: round.ReportedRiskSummary{
			Median: tt.recent,
			Mean:   tt.recent}}}, round.ReportedRiskSummary{Median: tt.first, Mean: tt.first}, tt.suspects
		first, events := w.Aggregate(1, spool, e)
		w.useWeight(t, 1e9)
		again, _ := w.Aggregate(1, spool, e)
		if first.Err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("%s: %v; repeated: %+v, %+v", tt.name, first.Err, first, again)
		}
		f, rejected := events[0].(ModelRejected)
		if rejected != tt.rejected {
			t.Errorf("%s: rejected: %v, want %v", tt.name, rejected, tt.rejected)
		}
		if !rejected {
			continue
		}
		if w.weight() != 1.5 || first.NextPlan.BaseModelVersion != 8 || len(first.NextPlan.SuspectAgents) > 0 ||
			!slices.Equal(first.SpoilingAgents, tt.suspects) || len(first.FateByLeftOutAgent) != 5 ||
			f.EarlierVersion != 6 || f.NextVersion != 8 || f.Version != 7 || !slices.Equal(f.SuspectAgents,
			tt.suspects) {
			t.Errorf("%s: weight %v, %+v, %+v", tt.name, w.weight(), f, first)
		}
	}
}

// TestGuardAfterACrash checks that aggregating the same updates with the journaled plan again yields the same result.
func TestGuardAfterACrash(t *testing.T) {
	for _, held := range []data.Source{line, nil} {
		w, spool, e := benchOf(t, 1, held, 0.3, 1e30, 0.1, 0.2, -8)
		w.cfg.Round.UsesRobustAggregation = true
		e.Plan.RecentAggregations = []round.PastAggregationSummary{{HeldOutRisk: 1.0 / 3, MedianNorm: 0.7}}
		journaled, err := json.Marshal(e.Plan)
		if err != nil {
			t.Fatal(err)
		}
		first, told := w.Aggregate(1, spool, e)
		w.useWeight(t, 1)
		e.Plan = round.Plan{}
		if err := json.Unmarshal(journaled, &e.Plan); err != nil {
			t.Fatal(err)
		}
		again, retold := w.Aggregate(1, spool, e)
		if first.Err != nil || !reflect.DeepEqual(first, again) || !reflect.DeepEqual(told[:2], retold[:2]) {
			t.Errorf("%v\n%+v\n%+v\n%+v\n%+v", first.Err, first, again, told, retold)
		}
	}
}

// TestRiskOfWhatWasTaken checks that the reported mean risk of a round does not include agents whose updates were left
// out of the model.
func TestRiskOfWhatWasTaken(t *testing.T) {
	w, spool, e := benchOf(t, 1, line, 1, 1e30, 1, 1, 1)
	w.cfg.Round.UsesRobustAggregation = true
	_, events := w.Aggregate(1, spool, e)
	if m, ok := events[len(events)-1].(ModelReady); !ok || m.MeanReportedRisk != 7.25 {
		t.Errorf("events %+v, want a model with the risk (0 + 4 + 9 + 16)/4", events)
	}
}

// TestNorms checks the norms of the aggregate and of the optimiser's step for updates of 3 and 5.
func TestNorms(t *testing.T) {
	w, spool, e := benchOf(t, 1, nil, -3, -5)
	w.cfg.Logger = slog.New(slog.DiscardHandler) // silence the warning about the missing previous state
	w.cfg.Round.ServerOptimizer.Name, w.cfg.Round.ServerOptimizer.LearningRate = "fedavgm", 0.25
	a, err := w.tryAggregation(7, w.wrapPackedSpool(spool), e, e.Contributions, nil)
	if err != nil || a.aggregateNorm != 4 || a.modelStepNorm != 1 {
		t.Errorf("lengths of fold and step: %+v, %v; want 4 and 1", a, err)
	}
}
