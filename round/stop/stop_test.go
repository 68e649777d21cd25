package stop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func held(risk float64) stop.Measurements { return stop.Measurements{HeldOutRisk: &risk} }
func told(risk float64) stop.Measurements { return stop.Measurements{MedianAgentRisk: &risk} }

// run records the measurements of one model after another. It returns the first reason to stop, and the model version
// for which that reason was returned.
func run(c stop.Config, figures []stop.Measurements) (stop.Reason, int, stop.State) {
	var s stop.State
	s.Resume(&c, began)
	for i, f := range figures {
		s.RecordMeasurements(&c, wire.ModelVersion(i+1), f)
		if why := s.StopReason(&c, began); why != "" {
			return why, i + 1, s
		}
	}
	return "", 0, s
}

func each(f func(float64) stop.Measurements, risks ...float64) (all []stop.Measurements) {
	for _, r := range risks {
		all = append(all, f(r))
	}
	return all
}

func TestVerdict(t *testing.T) {
	half, most := 0.5, 0.9
	scores := []stop.Measurements{{}, {R2: &half, Accuracy: &half}, {R2: &most, Accuracy: &most}}
	for name, c := range map[string]struct {
		rule    stop.Config
		figures []stop.Measurements
		want    stop.Reason
		at      int
	}{
		"no rule":          {stop.Config{}, each(held, 1, 1, 1, 1), "", 0},
		"risk":             {stop.Config{TargetRisk: 0.5}, each(held, 1, 0.75, 0.5), stop.TargetRiskReached, 3},
		"risk not reached": {stop.Config{TargetRisk: 0.25}, each(held, 1, 0.75, 0.5), "", 0},
		"r2":               {stop.Config{TargetR2: 0.9}, scores, stop.TargetR2Reached, 3},
		"r2 not reached":   {stop.Config{TargetR2: 0.95}, scores, "", 0},
		"accuracy":         {stop.Config{TargetAccuracy: 0.5}, scores, stop.TargetAccuracyReached, 2},
		"a target is said before others": {stop.Config{TargetRisk: 1, Patience: 1, MinImprovementShare: 0.9},
			each(held, 2, 1),
			stop.TargetRiskReached, 2},
		"any improvement": {stop.Config{Patience: 2}, each(held, 4, 3.9, 3.8, 3.8, 3.8),
			stop.PatienceExhausted, 5},
		"an equal risk is none": {stop.Config{Patience: 1}, each(held, 4, 4), stop.PatienceExhausted, 2},
		"too small a one": {stop.Config{Patience: 2, MinImprovementShare: 0.25}, each(held, 4, 3.5, 3),
			stop.PatienceExhausted, 3},
		"small ones add up": {stop.Config{Patience: 2, MinImprovementShare: 0.25}, each(held, 4, 3.5, 2.9, 2.5,
			2), "", 0},
		"worse and better again": {stop.Config{Patience: 3}, each(held, 4, 9, 9, 3.9, 9, 9, 3.8), "", 0},
		"zero is the best": {stop.Config{Patience: 1, MinImprovementShare: 0.5}, each(held, 0, 0),
			stop.PatienceExhausted, 2},
		"told: the mean of five": {stop.Config{TargetRisk: 3}, each(told, 1, 2, 3, 4, 5), stop.TargetRiskReached,
			5},
		"told: four say nothing": {stop.Config{TargetRisk: 3, Patience: 1}, each(told, 1, 9, 9, 9), "", 0},
		"told: one lucky round":  {stop.Config{TargetRisk: 0.5}, each(told, 5, 5, 5, 5, 5, 0, 5, 5), "", 0},
		"told: patience counts then": {stop.Config{Patience: 2}, each(told, 1, 1, 1, 1, 1, 1, 1),
			stop.PatienceExhausted, 7},
		"a figure that is missing counts neither way": {stop.Config{Patience: 2},
			append(each(told, 5, 4, 3, 2, 1), stop.Measurements{}, stop.Measurements{}, stop.Measurements{}, told(0)),
			"", 0},
		"held-out data that come later begin anew": {stop.Config{Patience: 2},
			append(each(told, 1, 1, 1, 1, 1, 1), each(held, 7, 6)...), "", 0},
	} {
		if why, at, s := run(c.rule, c.figures); why != c.want || at != c.at {
			t.Errorf("%s: %q at %d, want %q at %d; %+v", name, why, at, c.want, c.at, s)
		}
	}
}

// TestBudgets checks that a time limit or a byte limit ends the run exactly when the limit is reached, and at any later
// check.
func TestBudgets(t *testing.T) {
	c := stop.Config{TimeLimit: time.Hour, ByteLimit: 1000}
	var s stop.State
	s.Resume(&c, began)
	s.Resume(&c, began.Add(time.Minute)) // Resume the run in another process.
	for after, want := range map[time.Duration]stop.Reason{time.Hour - 1: "", time.Hour: stop.TimeLimitReached,
		9 * time.Hour: stop.TimeLimitReached, -time.Hour: ""} {
		if got := s.StopReason(&c, began.Add(after)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	if end := s.TimeLimitEndsAt(&c); !end.Equal(began.Add(time.Hour)) {
		t.Errorf("the end is %s", end)
	}
	if end := s.TimeLimitEndsAt(&stop.Config{ByteLimit: 1}); !end.IsZero() {
		t.Errorf("without a limit the end is %s", end)
	}
	for bytes, want := range map[uint64]stop.Reason{999: "", 1000: stop.ByteLimitReached,
		math.MaxUint64: stop.ByteLimitReached} {
		if s.TransferredBytes = bytes; s.StopReason(&c, began) != want {
			t.Errorf("%d bytes: %q, want %q", bytes, s.StopReason(&c, began), want)
		}
	}
	none := stop.Config{}
	if s.Resume(&none, began); !s.TimeLimitStartedAt.IsZero() || s.TransferredBytes != 0 || s.StopReason(&none,
		began.Add(24*time.Hour)) != "" {
		t.Errorf("without a rule the state is %+v", s)
	}
}

// TestRescaled checks that the comparison of risks starts from zero after the data columns were rescaled, and that the
// earlier results are kept until the next comparison.
func TestRescaled(t *testing.T) {
	c := stop.Config{Patience: 2}
	_, _, s := run(c, each(held, 1, 1))
	s.NextRisksIncomparable = true
	if s.AggregationsSinceBest != 1 || s.BestRisk != 1 {
		t.Errorf("%+v", s)
	}
	s.RecordMeasurements(&c, 3, held(50))
	if s.AggregationsSinceBest != 0 || s.BestRisk != 50 || s.BestVersion != 3 || s.JudgedRiskCount != 1 ||
		s.NextRisksIncomparable {
		t.Errorf("%+v", s)
	}
}

// TestJournaled checks that a copy of a State does not change when the original State is updated.
func TestJournaled(t *testing.T) {
	c := stop.Config{Patience: 9}
	_, _, s := run(c, each(told, 1, 2, 3, 4, 5))
	saved, was := s, slices.Clone(s.RecentMedianRisks)
	for i := range 7 {
		s.RecordMeasurements(&c, wire.ModelVersion(6+i), told(9))
	}
	if !slices.Equal(saved.RecentMedianRisks, was) {
		t.Errorf("%v has become %v", was, saved.RecentMedianRisks)
	}
}

func TestValidate(t *testing.T) {
	c := stop.DefaultConfig()
	if err := c.Validate(); err != nil || c.IsEnabled() {
		t.Errorf("%v; on: %t", err, c.IsEnabled())
	}
	for key, change := range map[string]func(*stop.Config){
		"risk": func(c *stop.Config) { c.TargetRisk = math.NaN() }, "r2": func(c *stop.Config) { c.TargetR2 = 1.1 },
		"accuracy":    func(c *stop.Config) { c.TargetAccuracy = -0.1 },
		"patience":    func(c *stop.Config) { c.Patience = -1 },
		"improvement": func(c *stop.Config) { c.MinImprovementShare = 1 },
		"time":        func(c *stop.Config) { c.TimeLimit = -1 }, "bytes": func(c *stop.Config) { c.ByteLimit = -1 },
	} {
		c := stop.DefaultConfig()
		change(&c)
		field := (*spec.FieldError)(nil)
		if !errors.As(c.Validate(), &field) || field.Key != key {
			t.Errorf("a wrong %s: %v", key, c.Validate())
		}
	}
	for key, change := range map[string]func(*stop.Config){
		"risk": func(c *stop.Config) { c.TargetRisk = 1 }, "r2": func(c *stop.Config) { c.TargetR2 = 1 },
		"accuracy": func(c *stop.Config) { c.TargetAccuracy = 1 }, "patience": func(c *stop.Config) { c.Patience = 1 },
		"time": func(c *stop.Config) { c.TimeLimit = 1 }, "bytes": func(c *stop.Config) { c.ByteLimit = 1 },
	} {
		c := stop.DefaultConfig()
		if change(&c); !c.IsEnabled() || c.Validate() != nil {
			t.Errorf("%s is no rule: %v", key, c.Validate())
		}
	}
}

// TestLargestNumbers checks that a State can be encoded as JSON, however large the reported risks are.
func TestLargestNumbers(t *testing.T) {
	most, c := math.MaxFloat64, stop.Config{Patience: 3}
	var s stop.State
	for v := range wire.ModelVersion(2 * stop.RiskWindowAggregations) {
		s.RecordMeasurements(&c, v+1, stop.Measurements{MedianAgentRisk: &most})
	}
	if _, err := json.Marshal(s); err != nil || s.JudgedRiskCount == 0 {
		t.Errorf("%+v: %v", s, err)
	}
}

// reports returns the risks that the agents a, b, … report in one aggregation. A negative risk means that the agent did
// not participate.
func reports(risks ...float64) (f stop.Measurements) {
	for i, r := range risks {
		if r >= 0 {
			f.AgentRisks = append(f.AgentRisks, stop.AgentRisk{Agent: wire.AgentID('a' + rune(i)), Risk: r})
		}
	}
	median := 1.0 // median over a different group of agents in each aggregation, which the rules must not use
	f.MedianAgentRisk = &median
	return f
}

// TestEqualPopulations checks that the patience rule compares the risks of the same agents, and that it starts counting
// from zero when an agent joins or leaves.
func TestEqualPopulations(t *testing.T) {
	const patience = 3
	c := stop.Config{Patience: patience, MinImprovementShare: 0.01}
	repeat := func(n int, f stop.Measurements) (all []stop.Measurements) {
		for range n {
			all = append(all, f)
		}
		return all
	}
	falling := func(n int, from float64, more ...float64) (all []stop.Measurements) {
		for i := range n {
			x := from * math.Pow(0.9, float64(i))
			all = append(all, reports(append([]float64{x, 1.1 * x}, more...)...))
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		figures []stop.Measurements
		version int // model version at which the run must end; 0 means that the run must not end
	}{
		{"constant risks", repeat(20, reports(1, 2, 3)), stop.RiskWindowAggregations + patience},
		{"a hard device joins: its risk is no regression", slices.Concat(repeat(6, reports(1, 1)),
			repeat(stop.RiskWindowAggregations+patience-1, reports(5, 5, 90))), 0},
		{"and the run ends after its patience", slices.Concat(repeat(6, reports(1, 1)),
			repeat(20, reports(5, 5, 90))), 6 + stop.RiskWindowAggregations + patience},
		{"a hard device is away for a while", slices.Concat(falling(10, 8, 90), falling(10, 2.7, -1),
			falling(10, 0.9, 90)), 0},
		{"an easy device leaves: the others still improve", slices.Concat(
			falling(8, 100, 0.01), falling(16, 43, -1)), 0},
		{"all others than before", slices.Concat(repeat(6, reports(1, 1, -1, -1)),
			repeat(stop.RiskWindowAggregations, reports(-1, -1, 3, 3)), repeat(patience-1, reports(1, 1, -1, -1))), 0},
		{"one device lies", repeat(20, reports(1, 2, 1e300)), stop.RiskWindowAggregations + patience},
	} {
		why, at, s := run(c, tt.figures)
		if at != tt.version || (why == stop.PatienceExhausted) != (tt.version > 0) {
			t.Errorf("%s: ends with %q at %d, want %d; %+v", tt.name, why, at, tt.version, s)
		}
	}
}

// TestDraws checks the patience rule when few of many agents participate in each round. The rule must end a run with
// constant risks, and must not end a run with falling risks.
func TestDraws(t *testing.T) {
	const patience = 10
	for _, agents := range []int{20, 60, 100, 256} {
		for _, factor := range []float64{1, 0.97} {
			c, rng := stop.Config{Patience: patience, MinImprovementShare: 0.01}, rand.New(rand.NewPCG(1,
				uint64(agents)))
			s, ended := stop.State{}, 0
			name := func(i int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%03d", i)) }
			for i := range agents {
				s.AddAgent(name(i))
			}
			for v := 1; v <= 100 && ended == 0; v++ {
				f := told(1)
				for _, i := range rng.Perm(agents)[:min(agents, 6)] {
					risk := float64(1+i%7) * math.Pow(factor, float64(v))
					f.AgentRisks = append(f.AgentRisks, stop.AgentRisk{Agent: name(i), Risk: risk})
				}
				if s.RecordMeasurements(&c, wire.ModelVersion(v), f); s.StopReason(&c, began) != "" {
					ended = v
				}
			}
			if want := stop.RiskWindowAggregations + patience; factor == 1 && ended != want || factor < 1 &&
				ended != 0 {
				t.Errorf("6 of %d agents, risks times %v: ended at %d; %+v", agents, factor, ended, s)
			}
		}
	}
}

// TestLeft checks that the patience rule starts counting from zero when an agent leaves or its data no longer fit.
func TestLeft(t *testing.T) {
	c := stop.Config{Patience: 3}
	var s stop.State
	for v := range 7 {
		s.RecordMeasurements(&c, wire.ModelVersion(v), reports(1, 9))
	}
	if s.AggregationsSinceBest != 2 || len(s.AgentRiskHistories) != 2 {
		t.Errorf("before: %+v", s)
	}
	s.RemoveAgent("x")
	if s.AggregationsSinceBest != 2 {
		t.Errorf("an unknown agent has left: %+v", s)
	}
	s.RemoveAgent("b")
	if s.AggregationsSinceBest != 0 || s.JudgedRiskCount != 0 || len(s.AgentRiskHistories) != 1 {
		t.Errorf("after: %+v", s)
	}
}

// TestManyAgents checks that the stopping rules compare medians over all participants in a large federation.
func TestManyAgents(t *testing.T) {
	c := stop.Config{Patience: 3}
	var s stop.State
	for v := range 8 {
		f := told(1)
		for i := range 300 {
			f.AgentRisks = append(f.AgentRisks, stop.AgentRisk{Agent: wire.AgentID(strconv.Itoa(1000*v + i)), Risk: 5})
		}
		s.RecordMeasurements(&c, wire.ModelVersion(v), f)
	}
	if s.StopReason(&c, began) != stop.PatienceExhausted || s.LatestRisk != 1 || len(s.AgentRiskHistories) > 0 {
		t.Errorf("%+v", s)
	}
}
