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

// setOf returns contributions with the given update norms; each agent has the weight 1.
func setOf(lengths ...float64) (set []round.Contribution) {
	for k, l := range lengths {
		set = append(set, round.Contribution{Agent: agentNumber(k), Weight: 1,
			UpdateMetadata: rule.UpdateMetadata{DrawCount: 1, ContributionFactor: 1, Norm: l}})
	}
	return set
}

// robust returns the default configuration with the option round.robust enabled.
func robust() *round.Config {
	cfg := round.DefaultConfig()
	cfg.UsesRobustAggregation = true
	return &cfg
}

func TestBound(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lengths []float64
		recent  []float64
		usual   float64
		above   []int // indices of updates with more than 100 times the usual norm, in a set of at least 5
		long    []int // expected indices of large updates among the remaining updates
		// outweigh contains the expected indices of updates that outweigh all others, among the large updates.
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
			p.RecentAggregations = append(p.RecentAggregations, round.PastAggregationSummary{MedianNorm: l})
		}
		b := p.AssessUpdateNorms(robust().EffectiveAggregation(), true, spec.WeightInStepSize, setOf(tt.lengths...))
		if b.UsualNorm != tt.usual || !slices.Equal(b.RefusedIndices, tt.above) || !slices.Equal(b.LargeNormIndices,
			tt.long) ||
			!slices.Equal(b.OutweighingIndices, tt.outweigh) {
			t.Errorf("%s: usual %v, above %v, long %v, outweigh %v; want %v, %v, %v, %v", tt.name, b.UsualNorm,
				b.RefusedIndices,
				b.LargeNormIndices, b.OutweighingIndices, tt.usual, tt.above, tt.long, tt.outweigh)
		}
		if len(b.KeptContributions) != len(tt.lengths)-len(tt.above) ||
			len(b.KeptNormsPerStepWeight) != len(b.KeptContributions) {
			t.Errorf("%s: %d updates of %d lengths are taken", tt.name, len(b.KeptContributions),
				len(b.KeptNormsPerStepWeight))
		}
		for k, x := range b.KeptContributions {
			if x.MaxNorm != 3*tt.usual || x.ClippedNorm() < x.Norm != slices.Contains(b.LargeNormIndices, k) {
				t.Errorf("%s: of %v counts %v, at most %v", tt.name, x.Norm, x.ClippedNorm(), x.MaxNorm)
			}
		}
	}
}

// TestBoundOfWeights checks that the norm bound of an update is proportional to the weight of the agent's step, that 0
// means no bound, and that the rule trimmed_mean has no bound.
func TestBoundOfWeights(t *testing.T) {
	p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	set := setOf(1, 1, 8)
	set[2].Weight = 4
	by := rule.Config{Rule: rule.Mean, ClipAboveFactor: 1.5}
	if b := p.AssessUpdateNorms(by, false, spec.WeightInStepSize, set); b.KeptContributions[2].MaxNorm != 6 ||
		b.KeptContributions[2].ClippedNorm() != 6 {
		t.Errorf("weights in the step: at most %v", b.KeptContributions[2].MaxNorm)
	}
	if b := p.AssessUpdateNorms(by, false, spec.WeightInServerMean, set); b.KeptContributions[2].MaxNorm != 1.5 {
		t.Errorf("weights in the mean: at most %v", b.KeptContributions[2].MaxNorm)
	}
	by.ClipNorm = 2
	if b := p.AssessUpdateNorms(by, false, spec.WeightInStepSize, set); b.KeptContributions[2].MaxNorm != 2 {
		t.Errorf("a norm: at most %v", b.KeptContributions[2].MaxNorm)
	}
	for _, by := range []rule.Config{{Rule: rule.Mean}, {Rule: rule.TrimmedMean, ClipAboveFactor: 3}} {
		if b := p.AssessUpdateNorms(by, false, spec.WeightInServerMean, set); b.KeptContributions[2].MaxNorm != 0 ||
			len(b.LargeNormIndices) != 1 {
			t.Errorf("%+v: at most %v, %v are long", by, b.KeptContributions[2].MaxNorm, b.LargeNormIndices)
		}
	}
}

// TestLongAreTheLiars checks sets of updates in which most updates are honest and have similar norms. It expects that
// all updates above three times the median norm are clipped or refused, and no honest update is.
func TestLongAreTheLiars(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	for range 2000 {
		n := 3 + rng.IntN(30)
		liars := rng.IntN((n + 1) / 2)
		scale := math.Exp(20 * rng.NormFloat64())
		lengths, lies := make([]float64, n), map[wire.AgentID]bool{}
		for k := range lengths {
			// The honest norms are the majority, so the median norm is at least as large as the smallest honest norm.
			lengths[k] = scale * (1 + 0.9*rng.Float64())
		}
		for _, k := range rng.Perm(n)[:liars] {
			lies[agentNumber(k)], lengths[k] = true, scale*math.Pow(10, 2+20*rng.Float64())
		}
		b := p.AssessUpdateNorms(robust().EffectiveAggregation(), true, spec.WeightInStepSize, setOf(lengths...))
		for _, x := range b.KeptContributions {
			if x.ClippedNorm() < x.Norm != lies[x.Agent] || x.ClippedNorm() > 6*scale {
				t.Fatalf("%v: of %s counts %v, liars %v", lengths, x.Agent, x.ClippedNorm(), lies)
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
	recent := []round.PastAggregationSummary{{HeldOutRisk: 0.1}, {HeldOutRisk: 0.3}, {HeldOutRisk: 0.2}}
	for _, tt := range []struct {
		risk, base, floor float64
		recent            []round.PastAggregationSummary
		want              bool
	}{
		{2.9, 0, 1, recent, false},
		{3.1, 0, 1, recent, true},
		{3.1, 0, 4, recent, false}, // The risk is below the risk of an uninformed model.
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

// TestDiverged checks that a model counts as diverged only if both the median and the mean of the reported risks exceed
// ten times the worst earlier value. The report of a single agent must not change the result.
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
		p := round.Plan{FirstReportedRisks: round.SummarizeReportedRisks(tt.before),
			SuspectAgents: make([]wire.AgentID, tt.suspects)}
		if got := p.BaseModelDiverged(round.SummarizeReportedRisks(tt.now)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		p = round.Plan{RecentAggregations: []round.PastAggregationSummary{{},
			{ReportedRisks: round.SummarizeReportedRisks(tt.before)}, {}},
			SuspectAgents: make([]wire.AgentID, tt.suspects)}
		if got := p.BaseModelDiverged(round.SummarizeReportedRisks(tt.now)); got != tt.want {
			t.Errorf("%s, by the last folds: %v", tt.name, got)
		}
	}
}

// TestSteadyIsClipped checks the treatment of large updates with round.robust. The update of an agent is clipped if the
// agent's last three updates were large and of similar norm, and left out if their norms vary.
func TestSteadyIsClipped(t *testing.T) {
	for _, tt := range []struct {
		lengths      []float64 // norms of agent a4's last updates
		robust, left bool
	}{
		{[]float64{300, 310}, true, false}, {[]float64{300}, true, true}, {[]float64{300, 1e6}, true, true},
		{nil, true, true}, {[]float64{300, 310}, false, true},
	} {
		p := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
		if tt.lengths != nil {
			p.LargeNormAgents = []round.LargeNormAgent{{Agent: agentNumber(4), ConsecutiveLargeNorms: len(tt.lengths),
				RecentNorms: tt.lengths}}
		}
		set := setOf(1, 1, 1, 1, 290)
		b := p.AssessUpdateNorms(robust().EffectiveAggregation(), tt.robust, spec.WeightInStepSize, set)
		if left := len(b.RefusedIndices) == 1; left != tt.left || len(b.OutweighingIndices) > 0 || !left &&
			b.KeptContributions[4].ClippedNorm() != 3 {
			t.Errorf("%+v: %+v", tt, b)
		}
		now, ended := p.NextLargeNormAgents(set, &b)
		if len(now) != 1 || now[0].ConsecutiveLargeNorms != len(tt.lengths)+1 ||
			now[0].RecentNorms[len(tt.lengths)] != 290 || ended != nil {
			t.Errorf("%+v: %+v, %+v", tt, now, ended)
		}
		p.LargeNormAgents = now
		quiet := setOf(1, 1, 1, 1, 2)
		b = p.AssessUpdateNorms(robust().EffectiveAggregation(), tt.robust, spec.WeightInStepSize, quiet)
		if now, ended := p.NextLargeNormAgents(quiet, &b); len(now) != 0 || len(ended) != 1 {
			t.Errorf("%+v: after a usual update %+v, %+v", tt, now, ended)
		}
	}
}

// TestRecentOutlivesARestart checks that the summaries of past aggregations are bitwise identical after they are
// written to the journal and read back.
func TestRecentOutlivesARestart(t *testing.T) {
	var p round.Plan
	for i := range 2 * round.MaxPastAggregations {
		p.RecentAggregations = round.AppendPastAggregation(p.RecentAggregations, 0.1*float64(i),
			round.ReportedRiskSummary{Median: 0.2 * float64(i), Mean: 7},
			[]float64{math.Pi * float64(i), math.MaxFloat64, 0})
	}
	last := float64(2*round.MaxPastAggregations - 1)
	if len(p.RecentAggregations) != round.MaxPastAggregations ||
		p.RecentAggregations[round.MaxPastAggregations-1] != (round.PastAggregationSummary{HeldOutRisk: 0.1 * last,
			MedianNorm:    math.Pi * last,
			ReportedRisks: round.ReportedRiskSummary{Median: 0.2 * last, Mean: 7}}) {
		t.Errorf("%d remembered: %+v", len(p.RecentAggregations), p.RecentAggregations)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var q round.Plan
	if err := json.Unmarshal(text, &q); err != nil || !reflect.DeepEqual(p.RecentAggregations, q.RecentAggregations) {
		t.Errorf("%v: %+v, want %+v", err, q.RecentAggregations, p.RecentAggregations)
	}
}

// TestWithout checks that removing updates from a set of contributions gives the same set as if these updates had never
// been accepted.
func TestWithout(t *testing.T) {
	var all []round.Participant
	for k := range 5 {
		all = append(all, round.Participant{Agent: wire.AgentID(fmt.Sprint("a", k)), DrawCount: 1 + k%2,
			Weight: 0.5 + float64(k), AcceptedUpdateDigest: wire.Digest{byte(k)}})
	}
	for _, plan := range []round.Plan{
		{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters},
		{Kind: wire.KindTraining, Exchange: spec.ExchangeGradient, ServerStepSize: 0.1},
	} {
		for _, weighting := range []spec.WeightPlacement{spec.WeightInStepSize, spec.WeightInServerMean} {
			cfg := round.DefaultConfig()
			cfg.WeightPlacement = weighting
			set := round.BuildContributions(all, &plan, &cfg)
			var places []int
			for k, c := range set {
				if c.Agent == "a1" || c.Agent == "a4" {
					places = append(places, k)
				}
			}
			got := round.ContributionsWithoutIndices(set, places)
			want := round.BuildContributions([]round.Participant{all[0], all[2], all[3]}, &plan, &cfg)
			for k := range want { // The AgentIDRank values of the reduced set refer to the whole set.
				want[k].AgentIDRank = slices.IndexFunc(all,
					func(p round.Participant) bool { return p.Agent == want[k].Agent })
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			length := plan.NormPerStepWeight(weighting, round.Contribution{Weight: 2.5,
				UpdateMetadata: rule.UpdateMetadata{Norm: 10}})
			inStep := weighting == spec.WeightInStepSize && plan.Exchange == spec.ExchangeParameters
			if inStep && length != 4 || !inStep && length != 10 {
				t.Errorf("a norm of 10 with weight 2.5, %s, %v: length %v", weighting, plan.Exchange, length)
			}
		}
	}
}

// TestPlanInTheJournal checks that the journal stores the kind of exchange as a protocol code, so that journals of
// older versions remain readable.
func TestPlanInTheJournal(t *testing.T) {
	for exchange, want := range map[spec.ExchangeKind]string{"": `"Exchange":0`, spec.ExchangeParameters: `"Exchange":1`,
		spec.ExchangeGradient: `"Exchange":2`} {
		p := round.Plan{Kind: wire.KindTraining, BaseModelVersion: 7, UpdateBytes: 40, Exchange: exchange,
			HasEndlessBlocks: true,
			ServerStepSize:   0.1, LocalStepOffset: 3}
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
