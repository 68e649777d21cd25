package aggregation

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// withCentred returns an Aggregator whose rule is centred clipping, with the given server optimiser.
func withCentred(t *testing.T, o optimizer.Config, updates ...float32) (momentum, func() round.AggregationEnded) {
	t.Helper()
	w, next := withMomentum(t, updates...)
	w.cfg.Round.Aggregation = rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 0.5}
	w.cfg.Round.ServerOptimizer = o
	return w, next
}

// TestCentredClipping checks that the updates 1, 1, 4 yield the aggregates 0.5, 1, 1 + 0.5/3, …, across restarts and
// with an optimiser's momentum.
func TestCentredClipping(t *testing.T) {
	aggregates := []float64{0.5, 1, 1 + 0.5/3, 1 + 0.5/3 + (0.5-1./3)/3}
	for _, beta := range []float64{0, 0.5} {
		o := optimizer.DefaultConfig()
		if beta > 0 {
			o = optimizer.Config{Name: "fedavgm", LearningRate: 1, Momentum: beta, Tau: 1}
		}
		w, next := withCentred(t, o, 1, 1, 4)
		m, want := 0., 0.
		for i, d := range aggregates {
			m = beta*m + d
			want += m
			next()
			if math.Abs(float64(w.weight())-want) > 1e-6 {
				t.Fatalf("momentum %v, after round %d: weight %v, want %v", beta, i+1, w.weight(), want)
			}
		}
	}
}

// TestCentredClippingAgain checks that repeating an interrupted aggregation yields the same result and state.
func TestCentredClippingAgain(t *testing.T) {
	w, next := withCentred(t, optimizer.DefaultConfig(), 1, 1, 4)
	foldsAgain(t, w, next)
}

// TestOneBeginsAnew checks that configuring a server optimiser during a run keeps the state of the aggregation rule,
// and vice versa. The log names the component that starts from its initial state.
func TestOneBeginsAnew(t *testing.T) {
	fedavgm := optimizer.Config{Name: "fedavgm", LearningRate: 1, Momentum: 0.5, Tau: 1}
	w, next := withCentred(t, optimizer.DefaultConfig(), 1, 1, 4)
	var log bytes.Buffer
	w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	next()                                // after this round the aggregate is 0.5
	w.cfg.Round.ServerOptimizer = fedavgm // the next round yields the momentum 1
	if next(); w.weight() != 1.5 || !strings.Contains(log.String(), "name=fedavgm") ||
		strings.Contains(log.String(), "name=centered_clipping") {
		t.Errorf("weight %v, want 1.5; log %s", w.weight(), &log)
	}
	log.Reset()
	w.cfg.Round.Aggregation = rule.DefaultConfig() // the next round yields the momentum 0.5 + 2
	if next(); w.weight() != 4 || log.Len() > 0 {
		t.Errorf("weight %v, want 4; log %s", w.weight(), &log)
	}
	// the next round yields the momentum 1.25 + 0.5
	w.cfg.Round.Aggregation = rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 0.5}
	if next(); w.weight() != 5.75 || !strings.Contains(log.String(), "name=centered_clipping") ||
		strings.Contains(log.String(), "name=fedavgm") {
		t.Errorf("weight %v, want 5.75; log %s", w.weight(), &log)
	}
}

// TestBackToAnAggregate checks that a run that starts from an archived model also restores the aggregate stored with
// that model, from which centred clipping continues.
func TestBackToAnAggregate(t *testing.T) {
	w, next := withCentred(t, optimizer.DefaultConfig(), 1, 1, 4)
	for range 3 {
		if err := w.archiveModel(w.unarchivedModel); err != nil {
			t.Fatal(err)
		}
		next()
	}
	info, err := w.folder.CurrentRunModels.List()
	if err != nil {
		t.Fatal(err)
	}
	w.folder.Origin = runs.RunOrigin{Model: "1/2", Digest: info[2].Digest}
	if state, err := w.inheritedServerState(); err != nil || len(state) != 1 || state[0][0] != 1 {
		t.Errorf("state %v, %v; want 1", state, err)
	}
}

// TestRuleEvents checks that updates which a rule excludes or clips are reported as events. Agents of excluded updates
// are informed, and are not suspended.
func TestRuleEvents(t *testing.T) {
	for _, tt := range []struct {
		by      rule.Config
		updates []float32
		model   float32
		out     []wire.AgentID
		clipped []observe.Event
	}{
		{rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1}, []float32{1, 2, 2.5, 3, 9}, 2.5,
			[]wire.AgentID{"a0", "a1", "a3", "a4"}, nil},
		{rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 1, AveragedUpdates: 3}, []float32{1, 2, 2.5, 3, 9}, 2.5,
			[]wire.AgentID{"a0", "a4"}, nil},
		{rule.Config{Rule: rule.Median, ClipNorm: 2}, []float32{1, 1.5, 5}, 1.5, nil,
			[]observe.Event{UpdatesClipped{9, ClippedNorm, []wire.AgentID{"a2"}, 5, 2}}},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 2}, []float32{1, 1, 7}, 4. / 3, nil,
			[]observe.Event{UpdatesClipped{9, ClippedAbove, []wire.AgentID{"a2"}, 7, 2}}},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 2, ClipNorm: 1.5}, []float32{1, 1, 7}, 3.5 / 3, nil,
			[]observe.Event{UpdatesClipped{9, ClippedNorm, []wire.AgentID{"a2"}, 7, 1.5}}},
		{rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 2}, []float32{1, 2, 4}, 5. / 3, nil,
			[]observe.Event{UpdatesClipped{9, ClippedRadius, []wire.AgentID{"a2"}, 4, 2}}},
	} {
		w, spool, e := benchOf(t, 0, nil, tt.updates...)
		w.cfg.Logger = slog.New(slog.DiscardHandler)
		w.cfg.Round.Aggregation = tt.by
		folded, events := w.Aggregate(1, spool, e)
		if folded.Err != nil || math.Abs(float64(w.weight()-tt.model)) > 1e-6 || len(folded.SpoilingAgents) > 0 {
			t.Errorf("%+v: weight %v, excluded %v, error %v; want %v", tt.by, w.weight(), folded.SpoilingAgents,
				folded.Err,
				tt.model)
		}
		var out []wire.AgentID
		var clipped []observe.Event
		for _, f := range events {
			switch f := f.(type) {
			case UpdatesExcludedByRule:
				out = f.Agents
			case UpdatesClipped:
				clipped = append(clipped, f)
			}
		}
		slices.Sort(out)
		if !slices.Equal(out, tt.out) || !reflect.DeepEqual(clipped, tt.clipped) ||
			len(folded.FateByLeftOutAgent) != len(out) {
			t.Errorf("%+v: without %v, told %v, clipped %+v; want %v, %+v", tt.by, out, folded.FateByLeftOutAgent,
				clipped, tt.out,
				tt.clipped)
		}
		for _, a := range out {
			if folded.FateByLeftOutAgent[a] != wire.FateLeftOutByRule {
				t.Errorf("%+v: %s is told %v", tt.by, a, folded.FateByLeftOutAgent[a])
			}
		}
	}
}

// TestTooFewForKrum checks that a round with too few updates for Krum is abandoned for that reason.
func TestTooFewForKrum(t *testing.T) {
	w, spool, e := benchOf(t, 0, nil, 1, 2, 3, 4)
	w.cfg.Round.Aggregation = rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1}
	if folded, _ := w.Aggregate(1, spool, e); !errors.Is(folded.Err, rule.ErrTooFewUpdates) {
		t.Errorf("error %v", folded.Err)
	}
}
