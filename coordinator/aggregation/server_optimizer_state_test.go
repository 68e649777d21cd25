package aggregation

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// momentum is an Aggregator with the server optimiser FedAvgM.
type momentum struct {
	*Aggregator
	journaled *round.Plan // plan of the next round in the journal
}

// withMomentum returns an Aggregator with FedAvgM, and a function that aggregates a round of the given updates.
func withMomentum(t *testing.T, updates ...float32) (momentum, func() round.AggregationEnded) {
	t.Helper()
	w, spool, e := benchOf(t, 0, nil, updates...)
	w.cfg.Round.ServerOptimizer = optimizer.Config{Name: "fedavgm", LearningRate: 0.5, Momentum: 0.5, Tau: 1}
	w.cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	e.Plan.BaseModelVersion = 0
	plan, err := w.storeModelAndPlanTraining(1, 0, 0, vector(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	return momentum{w, &plan}, func() round.AggregationEnded {
		w.folder.ModelSlots.ProtectNewest() // as in production, where saving the journal protects the newest slot
		plan.RecentAggregations = nil
		e.Plan = plan
		folded, _ := w.Aggregate(1, spool, e)
		if folded.Err != nil {
			t.Fatal(folded.Err)
		}
		plan = folded.NextPlan
		return folded
	}
}

// TestServerMomentum checks the model weights that the optimiser FedAvgM computes across restarts. Each round has the
// aggregate D = 1, so the momentum is m = 1, 1.5, 1.75, and each step is m/2.
func TestServerMomentum(t *testing.T) {
	w, next := withMomentum(t, 1, 1, 1)
	for i, want := range []float32{0.5, 1.25, 2.125} {
		next()
		if w.weight() != want {
			t.Fatalf("after round %d the weight is %v, want %v", i+1, w.weight(), want)
		}
	}
}

// TestFoldAgain checks that repeating an aggregation that was interrupted after storing its model and state yields the
// same result.
func TestFoldAgain(t *testing.T) {
	w, next := withMomentum(t, 1, 1, 1)
	foldsAgain(t, w, next)
}

// foldsAgain aggregates the second round twice, as after a crash, and checks that the model and its state are the same.
func foldsAgain(t *testing.T, w momentum, next func() round.AggregationEnded) {
	t.Helper()
	before := next()
	base := w.baseModelBlob
	folded := next()
	hash := folded.NextPlan.BaseModel.Hash
	first, err := w.folder.LoadModelSlot(1, 2, hash)
	if err != nil {
		t.Fatal(err)
	}
	w.baseModelBlob, *w.journaled = base, before.NextPlan // the journal still refers to the first model
	again := next()
	got, err := w.folder.LoadModelSlot(1, 2, hash)
	if again.NextPlan.BaseModel.Hash != hash || err != nil || !bytes.Equal(got.OptimizerState, first.OptimizerState) ||
		len(got.OptimizerState) == 0 {
		t.Errorf("another model or another state, error %v", err)
	}
}

// TestStateOfAnotherModel checks that a state is used only with the model that it belongs to. Otherwise the optimiser
// starts from its initial state and logs a warning.
func TestStateOfAnotherModel(t *testing.T) {
	for name, spoil := range map[string]func(m *runs.SlotModel){
		"cut short":            func(m *runs.SlotModel) { m.OptimizerState = []byte("\x07fedavgm1234") },
		"of another optimiser": func(m *runs.SlotModel) { m.OptimizerState = []byte("\x07fedadam12345678") },
		"not finite": func(m *runs.SlotModel) {
			m.OptimizerState = []byte("\x07fedavgm\xff\xff\xff\xff\xff\xff\xff\xff")
		},
		"removed":          func(m *runs.SlotModel) { m.OptimizerState = nil },
		"of another model": func(m *runs.SlotModel) { m.Hash[0]++ },
	} {
		w, next := withMomentum(t, 1, 1, 1)
		var log bytes.Buffer
		w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		next()
		next() // after this round the model's weight is 1.25
		if log.Len() > 0 {
			t.Fatalf("%s: before it is spoiled: %s", name, &log)
		}
		m, err := w.folder.LoadModelSlot(1, 2, w.baseModelBlob.Ref.Hash)
		if err == nil {
			spoil(m)
			for range 2 { // overwrite the other slot as well
				err = errors.Join(err, w.folder.SaveModelSlot(m))
				w.folder.ModelSlots.ProtectNewest()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		next()
		if w.weight() != 1.75 || !strings.Contains(log.String(), "restarted because its saved state") {
			t.Errorf("%s: weight %v, want 1.75; log %q", name, w.weight(), &log)
		}
	}
}

// TestBackToAModel checks that a run that starts from an archived model also restores the optimiser state stored with
// that model.
func TestBackToAModel(t *testing.T) {
	w, next := withMomentum(t, 1, 1, 1)
	for range 3 {
		if err := w.archiveModel(w.unarchivedModel); err != nil {
			t.Fatal(err)
		}
		next()
	}
	w.folder.Origin = runs.RunOrigin{Model: "1/1", Digest: wire.Digest{9}}
	if state, err := w.inheritedServerState(); err != nil || state != nil {
		t.Errorf("the state of another model: %v, %v", state, err)
	}
	info, err := w.folder.CurrentRunModels.List()
	if err != nil {
		t.Fatal(err)
	}
	w.folder.Origin.Digest = info[1].Digest
	if state, err := w.inheritedServerState(); err != nil || len(state) != 1 || state[0][0] != 1 {
		t.Errorf("state %v, %v; want 1", state, err)
	}
	if err := w.folder.CurrentRunModels.Prune(1, 2); err != nil {
		t.Fatal(err)
	}
	if state, err := w.inheritedServerState(); err != nil || state != nil {
		t.Errorf("the state of a model that was removed: %v, %v", state, err)
	}
}

// TestRefuseAbove checks that large updates are either left out before the aggregation or clipped, as configured. An
// agent whose update outweighs all others is suspended.
func TestRefuseAbove(t *testing.T) {
	for _, tt := range []struct {
		above   float64
		updates []float32
		model   float32
		left    int
		sitOut  int
	}{
		{0, []float32{1, 1, 1, 1, 3.5}, 1.4, 0, 0},
		{0, []float32{1, 1, 1, 1, 4.9}, 1.4, 0, 0},
		{0, []float32{1, 1, 1, 1, 101}, 1, 1, 1},
		{3, []float32{1, 1, 1, 1, 3.5}, 1, 1, 0},
		{3, []float32{1, 1, 1, 3.5}, 1.5, 0, 0}, // there are too few updates for a usual norm
		{3, []float32{1, 1, 1, 1, 2.9}, 1.38, 0, 0},
		{100, []float32{1, 1, 1, 1, 99}, 1, 1, 1},
		{100, []float32{1, 1, 1, 1, 101}, 1, 1, 1},
	} {
		w, spool, e := benchOf(t, 0, nil, tt.updates...)
		w.cfg.Round.UsesRobustAggregation = true
		w.cfg.Round.Aggregation.RefuseAboveFactor = cmp.Or(tt.above, 1e9) // a factor that no update reaches
		folded, events := w.Aggregate(1, spool, e)
		var left []UpdateLeftOut
		for _, f := range events {
			if f, ok := f.(UpdateLeftOut); ok {
				left = append(left, f)
			}
		}
		if folded.Err != nil || w.weight() != tt.model || len(left) != tt.left ||
			len(folded.SpoilingAgents) != tt.sitOut {
			t.Errorf("%+v: weight %v, left out %+v, excluded %v, error %v", tt, w.weight(), left, folded.SpoilingAgents,
				folded.Err)
		}
		want := LeftOutAbove
		if long := tt.updates[len(tt.updates)-1]; tt.above == 0 || long <= float32(tt.above) {
			want = LeftOutNorm
		}
		if tt.left > 0 && (left[0].Agent != "a4" || left[0].Reason != want || left[0].UsualNorm != 1) {
			t.Errorf("%+v: left out %+v", tt, left)
		}
	}
}

// TestTooFewToFold checks that suspect updates are used as well if the rule requires more updates than the guard would
// keep. If the rule requires more updates than the round has, the round is abandoned.
func TestTooFewToFold(t *testing.T) {
	// The rule keeps the median of an odd number of updates, and no update of an even number.
	nearHalf := rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.5 - 1e-12}
	w, spool, e := benchOf(t, 0, nil, 1, 2, 3, 4, 1e9)
	w.cfg.Round.Aggregation = nearHalf
	if folded, events := w.Aggregate(1, spool, e); folded.Err != nil || w.weight() != 3 || len(events) != 1 {
		t.Errorf("weight %v, error %v, events %+v; want 3 of all", w.weight(), folded.Err, events)
	}
	w, spool, e = benchOf(t, 0, nil, 1, 2)
	w.cfg.Round.Aggregation = nearHalf
	if folded, events := w.Aggregate(1, spool, e); !errors.Is(folded.Err, rule.ErrTooFewUpdates) || len(events) != 0 {
		t.Errorf("error %v, events %+v; want too few", folded.Err, events)
	}
}

// TestTrimmedFold checks that the coordinator aggregates with the configured rule.
func TestTrimmedFold(t *testing.T) {
	w, spool, e := benchOf(t, 0, nil, 1, 2, 3, 4, -4.9)
	w.cfg.Round.Aggregation = rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.2}
	if folded, _ := w.Aggregate(1, spool, e); folded.Err != nil || w.weight() != 2 {
		t.Errorf("weight %v, error %v; want 2", w.weight(), folded.Err)
	}
}
