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

func TestFindOutliers(t *testing.T) {
	usual := []round.Recent{{Length: 0.5}, {Length: 2}, {Length: 1}}
	for _, tt := range []struct {
		name    string
		lengths []float64
		recent  []round.Recent
		want    round.Outliers
	}{
		{"alike", []float64{1, 2, 3, 2, 1}, nil, round.Outliers{Usual: 2}},
		{"an honest long one", []float64{1, 1, 1, 1, 1, 1, 5.9}, nil, round.Outliers{Usual: 1, Long: []int{6}}},
		{"over all others together", []float64{1, 6.1, 1, 1, 1, 1, 1}, nil,
			round.Outliers{Usual: 1, Long: []int{1}, Outweighs: true}},
		{"of many", append(slices.Repeat([]float64{1}, 20), 19), nil, round.Outliers{Usual: 1, Long: []int{20}}},
		{"of many, and more", append(slices.Repeat([]float64{1}, 20), 21), nil,
			round.Outliers{Usual: 1, Long: []int{20}, Outweighs: true}},
		{"of three", []float64{1, 1e30, 1}, nil, round.Outliers{Usual: 1, Long: []int{1}}},
		{"of four", []float64{1, 1, 1e30, 1}, nil, round.Outliers{Usual: 1, Long: []int{2}}},
		{"two, and one between", []float64{1e30, 1, 4, 1, 1e30, 1, 1}, nil,
			round.Outliers{Usual: 1, Long: []int{0, 2, 4}, Outweighs: true}},
		{"half of them", []float64{1, 1e30, 1, 1e30, 1, 1e30}, nil,
			round.Outliers{Usual: 1, Long: []int{1, 3, 5}, Outweighs: true}},
		{"as long as rounds before were", []float64{1, 6, 1, 1, 1}, usual, round.Outliers{Usual: 2}},
		{"longer than rounds before", []float64{1, 6.1, 1, 1, 1}, usual,
			round.Outliers{Usual: 2, Long: []int{1}, Outweighs: true}},
		{"all still but one", []float64{0, 0, 0, 0, 1}, nil, round.Outliers{}},
		{"all still", []float64{0, 0, 0}, usual, round.Outliers{}},
		{"two, as long as honest ones on columns of unlike units", []float64{351800, 427200},
			[]round.Recent{{Length: 18.22}}, round.Outliers{Usual: 18.22}},
		{"none", nil, usual, round.Outliers{Usual: 2}},
		{"the longest that float32 can be", []float64{1, 1, 1, 1, math.MaxFloat32}, nil,
			round.Outliers{Usual: 1, Long: []int{4}, Outweighs: true}},
	} {
		if got := round.FindOutliers(tt.lengths, tt.recent); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestOutliersAreTheLiars: of any set whose majority is honest and of like lengths, exactly those are long that are
// over three medians, whatever they say and wherever they stand; honest ones of like lengths never are.
func TestOutliersAreTheLiars(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	for range 2000 {
		n := 3 + rng.IntN(30)
		liars := rng.IntN((n + 1) / 2)
		scale := math.Exp(20 * rng.NormFloat64())
		lengths, lies := make([]float64, n), map[int]bool{}
		for k := range lengths {
			// the median is one of these, or above them while they are the majority
			lengths[k] = scale * (1 + 0.9*rng.Float64())
		}
		for _, k := range rng.Perm(n)[:liars] {
			lies[k], lengths[k] = true, scale*math.Pow(10, 2+20*rng.Float64())
		}
		o := round.FindOutliers(lengths, nil)
		for k := range lengths {
			if slices.Contains(o.Long, k) != lies[k] {
				t.Fatalf("%v: long are %v, liars %v", lengths, o.Long, lies)
			}
		}
		if o.Outweighs != (liars > 0 && n >= 5) {
			t.Fatalf("%v: outweighs %v with %d liars", lengths, o.Outweighs, liars)
		}
	}
}

func TestExploded(t *testing.T) {
	recent := []round.Recent{{Risk: 0.1}, {Risk: 0.3}, {Risk: 0.2}}
	for _, tt := range []struct {
		risk, base, floor float64
		recent            []round.Recent
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
		if got := round.Exploded(tt.risk, tt.base, tt.floor, tt.recent); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestRecentOutlivesARestart: what is remembered is the same after it was in the journal, to the bit.
func TestRecentOutlivesARestart(t *testing.T) {
	var p round.Plan
	for i := range 2 * round.RecentFolds {
		p.Recent = round.Remember(p.Recent, 0.1*float64(i), []float64{math.Pi * float64(i), math.MaxFloat64, 0})
	}
	last := float64(2*round.RecentFolds - 1)
	if len(p.Recent) != round.RecentFolds ||
		p.Recent[round.RecentFolds-1] != (round.Recent{Risk: 0.1 * last, Length: math.Pi * last}) {
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
		for _, weighting := range []spec.Weighting{spec.WeightingStep, spec.WeightingMean} {
			cfg := round.DefaultConfig()
			cfg.Weighting = weighting
			set := round.Contributions(all, &plan, &cfg)
			var places []int
			for k, c := range set {
				if c.Agent == "a1" || c.Agent == "a4" {
					places = append(places, k)
				}
			}
			got := round.Without(set, places)
			want := round.Contributions([]round.Participant{all[0], all[2], all[3]}, &plan, &cfg)
			if !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			length := plan.Length(weighting, round.Contribution{Weight: 2.5, Share: rule.Share{Norm: 10}})
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
