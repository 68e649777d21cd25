package round_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// setOf is a set of updates of these lengths, all of weight 1.
func setOf(lengths ...float64) (set []round.Contribution) {
	for k, l := range lengths {
		set = append(set, round.Contribution{Agent: agentNumber(k), Weight: 1,
			UpdateMetadata: rule.UpdateMetadata{DrawCount: 1, Factor: 1, Norm: l}})
	}
	return set
}

// robust is a default configuration with round.robust.
func robust() *round.Config {
	cfg := round.DefaultConfig()
	cfg.Robust = true
	return &cfg
}

func TestBound(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lengths []float64
		recent  []float64
		usual   float64
		above   []int // more than 100 times as long, of at least 5
		long    []int // of the rest
		// of these
		outweigh []int
	}{
		{"alike", []float64{1, 2, 3, 2, 1}, nil, 2, nil, nil, nil},
		{"an honest long one", []float64{1, 1, 1, 1, 1, 1, 5.9}, nil, 1, nil, []int{6}, nil},
		{"three times as long", []float64{1, 1, 1, 3, 1}, nil, 1, nil, nil, nil},
		{"of three", []float64{1, 1e30, 1}, nil, 1, nil, []int{1}, nil},
		{"of four", []float64{1, 1, 1e30, 1}, nil, 1, nil, []int{2}, nil},
		{"of five", []float64{1, 101, 1e30, 1, 99, 1, 1}, nil, 1, []int{1, 2}, []int{2},
			[]int{2}},
		{"half of them", []float64{1, 1e30, 1, 1e30, 1, 1e30}, nil, 1, []int{1, 3, 5}, nil, nil},
		{"over all others together", []float64{1, 6.1, 1, 1, 1, 1, 1}, nil, 1, nil, []int{1}, []int{1}},
		{"of many", append(slices.Repeat([]float64{1}, 20), 19), nil, 1, nil, []int{20}, nil},
		{"of many, and more", append(slices.Repeat([]float64{1}, 20), 21), nil, 1, nil, []int{20}, []int{20}},
		{"one outweighs, one is long", []float64{9, 1, 4, 1, 1, 1, 1}, nil, 1, nil, []int{0, 2}, []int{0}},
		{"in a quiet round", []float64{1, 1, 1, 1, 8}, []float64{3, 1, 1, 1, 1, 1, 1}, 1, nil, []int{4}, nil},
		{"in a quiet round, and longer than ever", []float64{1, 1, 1, 1, 9.1}, []float64{3, 1, 1, 1, 1, 1, 1}, 1, nil,
			[]int{4}, []int{4}},
		{"as long as rounds before were", []float64{1, 6, 1, 1, 1}, []float64{0.5, 2, 3}, 2, nil, nil, nil},
		{"of rounds before the last five count", []float64{1, 6, 1, 1, 1}, []float64{9, 9, 9, 0.5, 2, 3, 2, 1}, 2, nil,
			nil, nil},
		{"longer than all rounds before", []float64{5e5, 4e5, 6e5}, []float64{1, 1, 1}, 5e5, nil, nil, nil},
		{"all still but one", []float64{0, 0, 0, 0, 1}, nil, 0, nil, nil, nil},
		{"all still but one, after rounds", []float64{0, 0, 0, 0, 1}, []float64{0.1}, 0.1, nil, []int{4}, nil},
		{"two, as long as honest ones on columns of unlike units", []float64{351800, 427200}, []float64{18.22}, 0, nil,
			nil, nil},
		{"none", nil, []float64{1}, 0, nil, nil, nil},
		{"the longest that float32 can be", []float64{1, 1, 1, 1, math.MaxFloat32}, nil, 1, []int{4}, nil, nil},
	} {
		p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
		for _, l := range tt.recent {
			p.Recent = append(p.Recent, round.RecentAggregation{Length: l})
		}
		b := p.AssessUpdateLengths(robust().EffectiveAggregation(), true, spec.WeightingStep, setOf(tt.lengths...))
		if b.UsualLength != tt.usual || !slices.Equal(b.RefusedIndices, tt.above) || !slices.Equal(b.LongIndices,
			tt.long) ||
			!slices.Equal(b.OutweighingIndices, tt.outweigh) {
			t.Errorf("%s: usual %v, above %v, long %v, outweigh %v; want %v, %v, %v, %v", tt.name, b.UsualLength,
				b.RefusedIndices,
				b.LongIndices, b.OutweighingIndices, tt.usual, tt.above, tt.long, tt.outweigh)
		}
		if len(b.TakenContributions) != len(tt.lengths)-len(tt.above) ||
			len(b.TakenLengths) != len(b.TakenContributions) {
			t.Errorf("%s: %d updates of %d lengths are taken", tt.name, len(b.TakenContributions), len(b.TakenLengths))
		}
		for k, x := range b.TakenContributions {
			if x.MaxNorm != 3*tt.usual || x.CountedNorm() < x.Norm != slices.Contains(b.LongIndices, k) {
				t.Errorf("%s: of %v counts %v, at most %v", tt.name, x.Norm, x.CountedNorm(), x.MaxNorm)
			}
		}
	}
}

// TestBoundOfWeights: where the step carries the weight, an update may be longer by it; a bound of 0 is none, and the
// trimmed mean has none.
func TestBoundOfWeights(t *testing.T) {
	p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	set := setOf(1, 1, 8)
	set[2].Weight = 4
	by := rule.Config{Rule: rule.Mean, ClipAboveFactor: 1.5}
	if b := p.AssessUpdateLengths(by, false, spec.WeightingStep, set); b.TakenContributions[2].MaxNorm != 6 ||
		b.TakenContributions[2].CountedNorm() != 6 {
		t.Errorf("weights in the step: at most %v", b.TakenContributions[2].MaxNorm)
	}
	if b := p.AssessUpdateLengths(by, false, spec.WeightingMean, set); b.TakenContributions[2].MaxNorm != 1.5 {
		t.Errorf("weights in the mean: at most %v", b.TakenContributions[2].MaxNorm)
	}
	by.ClipNorm = 2
	if b := p.AssessUpdateLengths(by, false, spec.WeightingStep, set); b.TakenContributions[2].MaxNorm != 2 {
		t.Errorf("a norm: at most %v", b.TakenContributions[2].MaxNorm)
	}
	for _, by := range []rule.Config{{Rule: rule.Mean}, {Rule: rule.TrimmedMean, ClipAboveFactor: 3}} {
		if b := p.AssessUpdateLengths(by, false, spec.WeightingMean, set); b.TakenContributions[2].MaxNorm != 0 ||
			len(b.LongIndices) != 1 {
			t.Errorf("%+v: at most %v, %v are long", by, b.TakenContributions[2].MaxNorm, b.LongIndices)
		}
	}
}

// TestLongAreTheLiars: of any set whose majority is honest and of like lengths, exactly those are clipped or refused
// that are over three medians, whatever they say and wherever they stand; honest ones of like lengths never are.
func TestLongAreTheLiars(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	for range 2000 {
		n := 3 + rng.IntN(30)
		liars := rng.IntN((n + 1) / 2)
		scale := math.Exp(20 * rng.NormFloat64())
		lengths, lies := make([]float64, n), map[wire.AgentID]bool{}
		for k := range lengths {
			// the median is one of these, or above them while they are the majority
			lengths[k] = scale * (1 + 0.9*rng.Float64())
		}
		for _, k := range rng.Perm(n)[:liars] {
			lies[agentNumber(k)], lengths[k] = true, scale*math.Pow(10, 2+20*rng.Float64())
		}
		b := p.AssessUpdateLengths(robust().EffectiveAggregation(), true, spec.WeightingStep, setOf(lengths...))
		for _, x := range b.TakenContributions {
			if x.CountedNorm() < x.Norm != lies[x.Agent] || x.CountedNorm() > 6*scale {
				t.Fatalf("%v: of %s counts %v, liars %v", lengths, x.Agent, x.CountedNorm(), lies)
			}
		}
		for _, k := range b.RefusedIndices {
			if !lies[agentNumber(k)] {
				t.Fatalf("%v: %d is refused, liars %v", lengths, k, lies)
			}
		}
	}
}

func TestExploded(t *testing.T) {
	recent := []round.RecentAggregation{{Risk: 0.1}, {Risk: 0.3}, {Risk: 0.2}}
	for _, tt := range []struct {
		risk, base, floor float64
		recent            []round.RecentAggregation
		want              bool
	}{
		{2.9, 0, 1, recent, false},
		{3.1, 0, 1, recent, true},
		{3.1, 0, 4, recent, false}, // better than knowing nothing
		{5, 1, 1, nil, false},
		{11, 1, 1, nil, true},
		{math.NaN(), 1, 1, nil, true},
		{math.Inf(1), 1, math.Inf(1), nil, true},
	} {
		if got := round.RiskExploded(tt.risk, tt.base, tt.floor, tt.recent); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestDiverged: the median and the mean of the reported risks must both be over ten times the worst so far. One agent
// that reports any risk neither has a good model rejected nor a bad one kept.
func TestDiverged(t *testing.T) {
	honest, bad := []float64{1, 2, 3, 4, 5}, []float64{1e9, 2e9, 3e9, 4e9, 5e9}
	for _, tt := range []struct {
		name     string
		before   []float64
		now      []float64
		suspects int
		want     bool
	}{
		{"better", honest, []float64{0.1, 0.2, 0.3, 0.4, 0.5}, 1, false},
		{"worse", honest, bad, 1, true},
		{"made by no fold", honest, bad, 0, false},
		{"nine times as bad", honest, []float64{9, 18, 27, 36, 45}, 1, false},
		{"one reports a large risk now", honest, []float64{1, 2, 3, 4, 1e300}, 1, false},
		{"one reported a large risk before", []float64{1, 2, 3, 4, 1e300}, []float64{1e58, 2e58, 3e58, 4e58, 0}, 1,
			true},
		{"towards one unusual device", []float64{1e-4, 1e-4, 2e-4, 2e-4, 450}, []float64{4, 4, 4, 4, 300}, 1, false},
		{"two agents", []float64{1, 1}, []float64{1e9, 1e9}, 1, false},
	} {
		p := round.Plan{FirstTold: round.SummarizeRisks(tt.before), Suspects: make([]wire.AgentID, tt.suspects)}
		if got := p.Diverged(round.SummarizeRisks(tt.now)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		p = round.Plan{Recent: []round.RecentAggregation{{}, {Told: round.SummarizeRisks(tt.before)}, {}},
			Suspects: make([]wire.AgentID, tt.suspects)}
		if got := p.Diverged(round.SummarizeRisks(tt.now)); got != tt.want {
			t.Errorf("%s, by the last folds: %v", tt.name, got)
		}
	}
}

// TestSteadyIsClipped: an agent whose updates were long and alike in three folds is clipped and not left out, with
// round.robust only. One whose lengths vary is left out.
func TestSteadyIsClipped(t *testing.T) {
	for _, tt := range []struct {
		lengths      []float64 // of a4's last updates
		robust, left bool
	}{
		{[]float64{300, 310}, true, false}, {[]float64{300}, true, true}, {[]float64{300, 1e6}, true, true},
		{nil, true, true}, {[]float64{300, 310}, false, true},
	} {
		p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
		if tt.lengths != nil {
			p.Large = []round.LongUpdateAgent{{Agent: agentNumber(4), Times: len(tt.lengths), Lengths: tt.lengths}}
		}
		set := setOf(1, 1, 1, 1, 290)
		b := p.AssessUpdateLengths(robust().EffectiveAggregation(), tt.robust, spec.WeightingStep, set)
		if left := len(b.RefusedIndices) == 1; left != tt.left || len(b.OutweighingIndices) > 0 || !left &&
			b.TakenContributions[4].CountedNorm() != 3 {
			t.Errorf("%+v: %+v", tt, b)
		}
		now, ended := p.NextLongUpdateAgents(set, &b)
		if len(now) != 1 || now[0].Times != len(tt.lengths)+1 ||
			now[0].Lengths[len(tt.lengths)] != 290 || ended != nil {
			t.Errorf("%+v: %+v, %+v", tt, now, ended)
		}
		p.Large = now
		quiet := setOf(1, 1, 1, 1, 2)
		b = p.AssessUpdateLengths(robust().EffectiveAggregation(), tt.robust, spec.WeightingStep, quiet)
		if now, ended := p.NextLongUpdateAgents(quiet, &b); len(now) != 0 || len(ended) != 1 {
			t.Errorf("%+v: after a usual update %+v, %+v", tt, now, ended)
		}
	}
}

// TestRecentOutlivesARestart: what is remembered is the same after it was in the journal, to the bit.
func TestRecentOutlivesARestart(t *testing.T) {
	var p round.Plan
	for i := range 2 * round.RecentFolds {
		p.Recent = round.AppendRecent(p.Recent, 0.1*float64(i), round.ReportedRisks{Median: 0.2 * float64(i), Mean: 7},
			[]float64{math.Pi * float64(i), math.MaxFloat64, 0})
	}
	last := float64(2*round.RecentFolds - 1)
	if len(p.Recent) != round.RecentFolds ||
		p.Recent[round.RecentFolds-1] != (round.RecentAggregation{Risk: 0.1 * last, Length: math.Pi * last,
			Told: round.ReportedRisks{Median: 0.2 * last, Mean: 7}}) {
		t.Errorf("%d remembered: %+v", len(p.Recent), p.Recent)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var q round.Plan
	if err := json.Unmarshal(text, &q); err != nil || !reflect.DeepEqual(p.Recent, q.Recent) {
		t.Errorf("%v: %+v, want %+v", err, q.Recent, p.Recent)
	}
}

// TestWithout: the rest of a set is what it would be if the others had never been accepted.
func TestWithout(t *testing.T) {
	var all []round.Participant
	for k := range 5 {
		all = append(all, round.Participant{Agent: wire.AgentID(fmt.Sprint("a", k)), Times: 1 + k%2,
			Weight: 0.5 + float64(k), Accepted: wire.Digest{byte(k)}})
	}
	for _, plan := range []round.Plan{
		{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters},
		{Kind: wire.KindTraining, Exchange: spec.ExchangeGradient, StepSize: 0.1},
	} {
		for _, weighting := range []spec.WeightPlacement{spec.WeightingStep, spec.WeightingMean} {
			cfg := round.DefaultConfig()
			cfg.WeightPlacement = weighting
			set := round.Contributions(all, &plan, &cfg)
			var places []int
			for k, c := range set {
				if c.Agent == "a1" || c.Agent == "a4" {
					places = append(places, k)
				}
			}
			got := round.ContributionsWithout(set, places)
			want := round.Contributions([]round.Participant{all[0], all[2], all[3]}, &plan, &cfg)
			for k := range want { // their ranks are those of the whole set
				want[k].Rank = slices.IndexFunc(all, func(p round.Participant) bool { return p.Agent == want[k].Agent })
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			length := plan.NormalizedLength(weighting, round.Contribution{Weight: 2.5,
				UpdateMetadata: rule.UpdateMetadata{Norm: 10}})
			inStep := weighting == spec.WeightingStep && plan.Exchange == spec.ExchangeParameters
			if inStep && length != 4 || !inStep && length != 10 {
				t.Errorf("a norm of 10 with weight 2.5, %s, %v: length %v", weighting, plan.Exchange, length)
			}
		}
	}
}

// The journal has the exchange as the byte of the protocol, so that an older one is read.
func TestPlanInTheJournal(t *testing.T) {
	for exchange, want := range map[spec.Exchange]string{"": `"Exchange":0`, spec.ExchangeParameters: `"Exchange":1`,
		spec.ExchangeGradient: `"Exchange":2`} {
		p := round.Plan{Kind: wire.KindTraining, Version: 7, Bytes: 40, Exchange: exchange, Endless: true,
			StepSize: 0.1, Offset: 3}
		text, err := json.Marshal(p)
		if err != nil || !strings.Contains(string(text), want) || strings.Count(string(text), "Exchange") != 1 {
			t.Errorf("%q: %s, %v; want %s", exchange, text, err, want)
		}
		var q round.Plan
		if err := json.Unmarshal(text, &q); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%v: %+v, want %+v", err, q, p)
		}
	}
}
